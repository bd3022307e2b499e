"""Pitfall 83: vmap of a hand-written Function around a kernel is refused by torch; an op maps, gradient included."""

import torch

import tinsmith as ts


def test_vmap(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(square)(x), x * x)
    each = torch.func.vmap(torch.func.grad(lambda row: square(row).sum()))(x)
    torch.testing.assert_close(each, 2 * x)
