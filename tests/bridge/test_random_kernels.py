"""Random kernels: values are right; the gradient is the true one, or just what the engine's reverse mode gives.

What an engine gets wrong inside a kernel is not under test here; what the bridge forgets to
save, spoils or rewrites is. Memory that nobody may read is poisoned.
"""

import linecache

import pytest
import torch
from torch.func import vmap

import tinsmith as ts
from support import random_kernels

CLOSE = {"rtol": 1e-8, "atol": 1e-10}


@pytest.fixture(autouse=True)
def _poisoned(configure, seed):
    """Run every other kernel in parallel, the others as their serial twin."""
    configure(poison="1", serial_below="0" if seed % 2 else "65536")


def compile_kernel(source, lang, seed):
    """Compile the kernel of a source text for an engine."""
    path = f"<random kernel {seed}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    scope = {"lang": lang}
    exec(compile(source, path, "exec", dont_inherit=True), scope)
    return lang.kernel(scope["kernel"])


def draw_inputs(seed, count=7):
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.rand(count, generator=generator, dtype=torch.float64) - 0.3 for _ in range(2))
    return x, w, torch.randperm(count, generator=generator).int()


def cotangents(seed, count=7):
    generator = torch.Generator().manual_seed(1000 + seed)
    return [torch.rand(count, generator=generator, dtype=torch.float64) for _ in range(2)]


def true_gradient(source, x, w, k, given):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    outputs = random_kernels.run_in_torch(source, x, w, k)
    pairs = [(out, cotangent) for out, cotangent in zip(outputs, given, strict=True) if out.requires_grad]
    if not pairs:
        return [torch.zeros_like(x), torch.zeros_like(w)]
    outputs, given = zip(*pairs, strict=True)
    return list(torch.autograd.grad(outputs, (x, w), given, allow_unused=True, materialize_grads=True))


def engine_gradient(kernel, x, w, k, given):
    """Compute the engine's own gradient on fresh leaves with zeroed gradients: forward once, then `.grad` once."""
    floats = [t.clone().requires_grad_() for t in (x, w, *(torch.zeros_like(x) for _ in range(3)))]
    for tensor in floats:
        tensor.grad = torch.zeros_like(tensor)
    x, w, h, y, z = floats
    c = torch.zeros(len(x), dtype=torch.int32)
    kernel(x, w, k, h, c, y, z)
    for tensor, cotangent in zip((y, z), given, strict=True):
        tensor.grad.copy_(cotangent)
    for tensor in (x, w, h):
        tensor.grad.zero_()
    kernel.grad(x, w, k, h, c, y, z)
    return [x.grad, w.grad]


def compute_gradient(function, x, w, k, given):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    return list(torch.autograd.grad(list(function(x, w, k)), (x, w), given, allow_unused=True, materialize_grads=True))


def are_close(ours, theirs):
    """Return True if numbers are close. Kernels that overflow have slopes inf - inf, NaN on both sides."""
    return all(torch.allclose(one, two, **CLOSE, equal_nan=True) for one, two in zip(ours, theirs, strict=True))


@pytest.mark.thinned(12)
@pytest.mark.parametrize("seed", range(100))
def test_a_random_kernel(lang64, seed):
    source = random_kernels.Writer(seed).source()
    kernel = compile_kernel(source, lang64, seed)
    op = ts.op(random_kernels.SPEC, scratch=random_kernels.SCRATCH)(kernel)
    x, w, k = draw_inputs(seed)
    given = cotangents(seed)
    for ours, true in zip(op(x, w, k), random_kernels.run_in_torch(source, x, w, k), strict=True):
        torch.testing.assert_close(ours, true, **CLOSE, msg=lambda words: f"{words}\n{source}")
    batch = [torch.stack([t, t.flip(0)]) for t in (x, w, k)]
    mapped = vmap(op)(*batch)
    for place, sample in enumerate(zip(*batch, strict=True)):
        for ours, single in zip(mapped, op(*sample), strict=True):
            torch.testing.assert_close(ours[place], single, **CLOSE, msg=lambda words: f"{words}\n{source}")
    wanted = true_gradient(source, x, w, k, given)
    try:
        actual = compute_gradient(op, x, w, k, given)
    except ts.GradientError:  # a kernel that no engine reverses rightly: refused, which is as good as right
        return
    if not are_close(actual, wanted):
        assert are_close(actual, engine_gradient(kernel, x, w, k, given)), f"{actual} {wanted}\n{source}"
        return
    in_batch = compute_gradient(vmap(op), *batch, [torch.stack([g, g]) for g in given])
    for place, sample in enumerate(zip(*batch, strict=True)):
        single = compute_gradient(op, *sample, given)
        assert are_close([g[place] for g in in_batch], single), f"{in_batch} {single}\n{source}"
