"""Random nests of loops: interpreted, they give what engines compute, and the gradient that Python's own run has."""

import linecache
import random

import pytest
import torch

import tinsmith as ts
from support import random_nests
from support.interpreted import interpret_op


def compile_kernel(source, lang, seed):
    path = f"<random nest {seed}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    scope = {"lang": lang, "__name__": "random_nests"}
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
def test_a_random_nest(lang64, seed):
    source = random_nests.Writer(random.Random(seed)).source()
    op = ts.op(random_nests.SPEC)(compile_kernel(source, lang64, seed))
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(5, generator=generator, dtype=torch.float64) - 0.3
    w = torch.rand(5, 3, generator=generator, dtype=torch.float64) - 0.3
    k = torch.randperm(5, generator=generator).int()
    ours = with_gradients(lambda *given: interpret_op(op, *given), x, w, k)
    theirs = with_gradients(lambda *given: random_nests.run_in_torch(source, *given), x, w, k)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-11, msg=lambda words: f"{words}\n{source}")
    with torch.no_grad():
        for one, two in zip(ours[:3], op(x, w, k), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-10, msg=lambda words: f"{words}\n{source}")
