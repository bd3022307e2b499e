"""Pitfall 54: a gradient buffer kept by the bridge and handed to torch is overwritten by the next backward."""

import torch

import tinsmith as ts


def test_gradients_of_several_backwards_add_up(lang64):
    @ts.op("a[1], x[n] -> y[n]")
    @lang64.kernel
    def scaled(a: lang64.types.ndarray(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = a[0] * x[i]

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    kept = []
    for value in (2.0, 3.0, 7.0):
        y = scaled(torch.tensor([value], dtype=torch.float64), x)
        kept.append(torch.autograd.grad(y.sum(), x, retain_graph=True)[0])
        y.sum().backward()
    assert x.grad.tolist() == [12.0] * 3
    assert [k.tolist() for k in kept] == [[2.0] * 3, [3.0] * 3, [7.0] * 3]
