"""Pitfall 50: a batch of size 0, such as no ray that hits anything."""

import torch

import tinsmith as ts


def test_empty_inputs_give_empty_outputs(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    y = square(x)
    assert y.shape == (0,) and y.dtype == torch.float64
    y.sum().backward()
    assert x.grad.shape == (0,)


def test_a_sum_over_nothing_is_zero(lang64):
    @ts.op("x[n, m], k[m] -> s[m]")
    @lang64.kernel
    def total(x: lang64.types.ndarray(ndim=2), k: lang64.types.ndarray(ndim=1), s: lang64.types.ndarray(ndim=1)):
        for i, j in x:
            s[j] += x[i, j] * k[j]

    x = torch.zeros(0, 3, dtype=torch.float64, requires_grad=True)
    k = torch.randn(3, dtype=torch.float64, requires_grad=True)
    s = total(x, k)
    assert s.tolist() == [0.0, 0.0, 0.0]
    s.sum().backward()
    assert x.grad.shape == (0, 3) and k.grad.tolist() == [0.0, 0.0, 0.0]
