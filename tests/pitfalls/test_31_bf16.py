"""Pitfall 31: bfloat16 dies in the engines with an AttributeError; an op computes it in float32, and rounds once."""

import torch

import tinsmith as ts


def test_bfloat16_is_computed_in_float32(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def cube(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    x = torch.randn(30).bfloat16().requires_grad_()
    y = cube(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, (x.float() ** 3).bfloat16(), rtol=0, atol=0)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (3 * x.detach().float() ** 2).bfloat16(), rtol=0, atol=0)
