"""Pitfall 59: one hidden buffer used by several layers in turn is overwritten before backward (tinn network.py)."""

import torch

import tinsmith as ts


def test_one_layer_op_used_for_every_layer(lang64):
    @ts.op("x[n], w[1] -> h[n]")
    @lang64.kernel
    def layer(x: lang64.types.ndarray(), w: lang64.types.ndarray(), h: lang64.types.ndarray()):
        for i in x:
            h[i] = lang64.tanh(w[0] * x[i])

    x = torch.randn(3, dtype=torch.float64)
    weights = [torch.randn(1, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    twins = [w.detach().clone().requires_grad_() for w in weights]
    h = t = x
    for w, twin in zip(weights, twins, strict=True):
        h = layer(h, w)
        t = torch.tanh(twin * t)
    h.sum().backward()
    t.sum().backward()
    for w, twin in zip(weights, twins, strict=True):
        torch.testing.assert_close(w.grad, twin.grad)
