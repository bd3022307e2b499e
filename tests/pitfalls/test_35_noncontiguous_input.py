"""Pitfall 35: a transposed tensor is refused by the engines (taichi #5425, #4258); an op takes it."""

import torch

import tinsmith as ts


def test_strided_inputs_and_their_gradients(lang64):
    @ts.op("x[n, m] -> y[n, m]")
    @lang64.kernel
    def weighted(x: lang64.types.ndarray(ndim=2), y: lang64.types.ndarray(ndim=2)):
        for i, j in x:
            y[i, j] = (i + 2 * j) * x[i, j] * x[i, j]

    base = torch.randn(4, 6, dtype=torch.float64)
    for view in (lambda x: x.t(), lambda x: x[::2, 1::3], lambda x: x[:1].expand(3, -1), lambda x: x.flip(0).t()):
        x, twin = (base.clone().requires_grad_() for _ in range(2))
        wanted = view(twin)
        weights = torch.arange(wanted.shape[0])[:, None] + 2 * torch.arange(wanted.shape[1])
        y = weighted(view(x))
        torch.testing.assert_close(y, weights * wanted**2)
        y.sin().sum().backward()
        (weights * wanted**2).sin().sum().backward()
        torch.testing.assert_close(x.grad, twin.grad)
