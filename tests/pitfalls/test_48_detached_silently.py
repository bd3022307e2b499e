"""Pitfall 48: a kernel called straight on tensors is not connected; its part of the gradient is missing (#270)."""

import torch

import tinsmith as ts


def test_the_op_s_part_of_the_gradient_is_there(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    (square(x) + x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() + 1)
