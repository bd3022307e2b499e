"""Pitfall 01: a leaf gets twice its gradient.

The kernel writes into the leaf's own `.grad`, then autograd adds the returned tensor to it
(taichi #8339, #8101, #8534).
"""

import torch

import tinsmith as ts


def test_a_leaf_gets_its_gradient_once(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(7, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, dtype=torch.float64)
    (square(x) * weight).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() * weight)
    (square(x) * weight).sum().backward()
    torch.testing.assert_close(x.grad, 4 * x.detach() * weight)
