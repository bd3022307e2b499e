"""Pitfall 49: with create_graph an engine's gradient is a constant for autograd, so a penalty on it vanishes.

The second derivative is made from the kernel's source; by a hand-written backward it is refused, never a silent zero.
"""

import pytest
import torch

import tinsmith as ts


def square(lang, **options):
    @ts.op("x[n] -> y[n]", **options)
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return square


def penalty(function, x, weight):
    (gradient,) = torch.autograd.grad((weight * function(x)).sum(), x, create_graph=True)
    torch.testing.assert_close(gradient.detach(), 2 * weight.detach() * x.detach())
    return (gradient**2).sum() + 0.0 * (weight * x).sum()


def make_leaves():
    return torch.randn(4, dtype=torch.float64, requires_grad=True), torch.tensor(1.5).double().requires_grad_()


@pytest.mark.parametrize("adjoint", ["auto", "engine"])
def test_a_gradient_penalty(lang64, adjoint):
    """However the first gradient was had, the second is by passes of our own."""
    x, weight = make_leaves()
    mine = torch.autograd.grad(penalty(square(lang64, adjoint=adjoint), x, weight), (x, weight))
    theirs = torch.autograd.grad(penalty(lambda x: x * x, x, weight), (x, weight))
    torch.testing.assert_close(mine, theirs)


def test_a_gradient_penalty_through_a_hand_written_backward_is_refused(lang64):
    op = square(lang64)

    @op.backward
    @lang64.kernel
    def backwards(x: lang64.types.ndarray(), grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * x[i] * grad_y[i]

    x, weight = make_leaves()
    loss = penalty(op, x, weight)
    with pytest.raises(ts.GradientError, match=r"`square`"):
        loss.backward()
