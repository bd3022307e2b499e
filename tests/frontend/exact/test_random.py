"""Random kernels, lowered and interpreted, against Python running their very source on torch's scalars."""

import linecache

import pytest
import torch

import tinsmith as ts
from support import random_kernels
from support.interpreted import interpret_op


def compile_kernel(source, lang, seed):
    path = f"<interpreted kernel {seed}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    scope = {"lang": lang}
    exec(compile(source, path, "exec", dont_inherit=True), scope)
    return lang.kernel(scope["kernel"])


def with_gradients(function, x, w, k):
    """Return values, and the gradients of all of them."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    outputs = function(x, w, k)
    total = sum((out * torch.arange(1, len(out) + 1) * (1.5 + n)).sum() for n, out in enumerate(outputs)) + 0 * x.sum()
    gradients = torch.autograd.grad(total, (x, w), allow_unused=True, materialize_grads=True)
    return *(out.detach() for out in outputs), *gradients


@pytest.mark.thinned(20)
@pytest.mark.parametrize("seed", range(100))
def test_a_random_kernel(lang64, seed):
    source = random_kernels.Writer(seed).source()
    op = ts.op(random_kernels.SPEC, scratch=random_kernels.SCRATCH)(compile_kernel(source, lang64, seed))
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.rand(7, generator=generator, dtype=torch.float64) - 0.3 for _ in range(2))
    k = torch.randperm(7, generator=generator).int()
    ours = with_gradients(lambda *given: interpret_op(op, *given), x, w, k)
    theirs = with_gradients(lambda *given: random_kernels.run_in_torch(source, *given), x, w, k)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            one, two, rtol=1e-12, atol=1e-12, equal_nan=True, msg=lambda words: f"{words}\n{source}"
        )
