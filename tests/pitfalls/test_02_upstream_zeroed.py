"""Pitfall 02: a sibling branch gets gradient 0.

Reversing a plain store, the engines zero the output's adjoint in place; with `y.grad = dy` that is
the tensor that autograd shares with the sibling, and here the caller's own.
"""

import torch

import tinsmith as ts


def test_the_incoming_gradient_stays_whole(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x, sibling = (torch.randn(6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    incoming = torch.randn(6, dtype=torch.float64)
    kept = incoming.clone()
    (sibling * 1.0 + square(x)).backward(incoming)
    assert torch.equal(incoming, kept)
    assert torch.equal(sibling.grad, kept)
    torch.testing.assert_close(x.grad, 2 * x.detach() * kept)
