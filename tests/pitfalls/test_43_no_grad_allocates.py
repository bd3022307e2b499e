"""Pitfall 43: a forward launch under no_grad allocates `.grad` (taichi #8340, #8460)."""

import torch

import tinsmith as ts


def test_no_gradient_memory_is_left_behind(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        y = square(x)
    assert x.grad is None and y.grad is None and not y.requires_grad
    y = square(x)
    assert x.grad is None
    torch.autograd.grad(y.sum(), x)
    assert x.grad is None
