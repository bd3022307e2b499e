"""Pitfall 49: with create_graph the hand-written gradient is a constant for autograd, so a penalty on it vanishes.

Second derivatives are refused until there is an adjoint of our own; never a silent zero.
"""

import pytest
import torch

import tinsmith as ts


def test_a_gradient_penalty_is_refused(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad((weight * square(x)).sum(), x, create_graph=True)
    torch.testing.assert_close(gradient.detach(), 3 * x.detach())
    penalty = (gradient**2).sum() + 0.0 * (weight * x).sum()
    with pytest.raises(ts.GradientError, match=r"(?is)second.*`square`|`square`.*second"):
        penalty.backward()
