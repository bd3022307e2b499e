"""Pitfall 02: a sibling branch gets gradient 0.

Reversing a plain store, the engines zero the output's adjoint in place; with `y.grad = dy` that is
the tensor that autograd shares with the sibling, and here the caller's own.
"""

import pytest
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


@pytest.mark.parametrize("form", ["one kernel", "chain"])
def test_an_output_that_is_added_to_and_read_again(lang64, form):
    """Nothing zeroes its adjoint, but reading it back adds to it: it must be a copy as well."""

    @lang64.kernel
    def first(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] += x[i] * x[i]

    @lang64.kernel
    def second(y: lang64.types.ndarray(), z: lang64.types.ndarray()):
        for i in y:
            z[i] += y[i] * y[i]

    @lang64.kernel
    def both(x: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()):
        for i in x:
            y[i] += x[i] * x[i]
        for i in x:
            z[i] += y[i] * y[i]

    spec = "x[n] -> y[n], z[n]"
    op = ts.op(spec)(both) if form == "one kernel" else ts.chain(spec, [first, second])
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    incoming = [torch.randn(5, dtype=torch.float64) for _ in range(2)]
    kept = [tensor.clone() for tensor in incoming]
    (gradient,) = torch.autograd.grad(list(op(x)), x, incoming)
    assert all(torch.equal(given, before) for given, before in zip(incoming, kept, strict=True))
    value = x.detach()
    torch.testing.assert_close(gradient, kept[0] * 2 * value + kept[1] * 4 * value**3)
