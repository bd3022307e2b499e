"""`trunc_exp` and the contraction of mip-NeRF 360, in values and derivatives."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd.gradcheck import gradcheck, gradgradcheck

import tinsmith as ts
from tinsmith.render import TruncExp, contract, trunc_exp, uncontract


@pytest.mark.parametrize("function", [trunc_exp, TruncExp()], ids=["function", "module"])
def test_the_gradient_of_trunc_exp_is_clamped_and_its_value_is_not(function):
    numbers = [-200.0, -3.0, 0.0, 2.5, 15.0, 15.5, 100.0]
    x = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    y = function(x)
    assert torch.equal(y, x.exp())
    (slope,) = torch.autograd.grad(y.sum(), x)
    expected = torch.tensor([math.exp(min(number, 15.0)) for number in numbers], dtype=torch.float64)
    torch.testing.assert_close(slope, expected)
    tangent = torch.func.jvp(function, (x.detach(),), (torch.ones_like(x),))[1]
    torch.testing.assert_close(tangent, expected)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(function))(x.detach()), expected)


def test_trunc_exp_is_differentiable_twice_below_the_clamp():
    x = torch.linspace(-2, 2, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(trunc_exp, (x,)) and gradgradcheck(trunc_exp, (x,))


def by_hand(x):
    """Contract one vector in Python."""
    length = math.sqrt(sum(number * number for number in x))
    return list(x) if length <= 1 else [(2 - 1 / length) * number / length for number in x]


def positions(count=60):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return x * torch.logspace(-2, 3, count, dtype=torch.float64)[:, None]


def test_contraction_agrees_with_the_formula_and_is_undone():
    x = positions()
    y = contract(x)
    torch.testing.assert_close(y, torch.tensor([by_hand(row) for row in x.tolist()], dtype=torch.float64))
    assert (y.norm(dim=-1) < 2).all() and (y.norm(dim=-1) > 1.99).any() and (y == x).all(-1).any()
    torch.testing.assert_close(uncontract(y), x, rtol=1e-8, atol=0)


@pytest.mark.parametrize(("dtype", "far"), [(torch.float32, 1e30), (torch.float64, 1e200)])
def test_points_whose_squared_length_is_not_finite(dtype, far):
    direction = torch.tensor([[1.0, -1.0, 0.0]], dtype=dtype)
    x = (far * direction).requires_grad_()
    y = contract(x)
    torch.testing.assert_close(y, 2**0.5 * direction)
    (slope,) = torch.autograd.grad(y[0, 0], x)
    # (2 / |x|) (1 - u u^T), and 1 / |x| beside it is nothing.
    torch.testing.assert_close(slope * far, direction.new_tensor([[2**-0.5, 2**-0.5, 0.0]]))


@pytest.mark.parametrize("function", [contract, uncontract])
def test_derivatives_of_the_contraction(function):
    x = torch.tensor([[0.3, 0.2, 0.1], [0.9, -0.8, 0.7], [-1.2, 0.1, 1.1]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(function, (x,)) and gradgradcheck(function, (x,))


@pytest.mark.parametrize("function", [contract, uncontract])
def test_the_middle_has_a_gradient(function):
    x = torch.zeros(1, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(function(x).sum(), x)
    assert torch.equal(slope, torch.ones(1, 3))


def test_the_edge_of_the_ball_and_what_is_beyond():
    x = uncontract(torch.tensor([[2.0], [2.5]]))
    assert x[0].isinf() and x[1].isnan()


@pytest.mark.parametrize("function", [contract, uncontract])
def test_a_number_is_no_position(function):
    with pytest.raises(ts.ShapeError, match=f"the positions of `{function.__name__}` have no"):
        function(torch.tensor(1.0))
