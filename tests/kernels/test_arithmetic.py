"""Functions by arithmetic alone, against torch in float64."""

# pyright: reportInvalidTypeForm=false

import math

import pytest
import torch

import tinsmith as ts
from tinsmith.kernels import arithmetic_exp


@pytest.fixture
def exp(lang):
    function = arithmetic_exp(lang)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = function(x[i])

    return ts.op("x[n] -> y[n]")(kernel)


def test_exp_is_within_two_units_in_the_last_place(exp):
    x = torch.linspace(-87.0, 88.72, 1_000_003)
    wanted = x.double().exp()
    unit = 2.0 ** (torch.frexp(wanted)[1].double() - 24)
    assert ((exp(x).double() - wanted).abs() / unit).max() < 2


def test_exp_of_small_numbers_and_zero(exp):
    x = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e-8, -1e-4])
    assert torch.equal(exp(x), x.exp())


@pytest.mark.parametrize("x", [math.inf, -math.inf, math.nan, 88.8, 1e30, -1e30, -110.0])
def test_exp_at_its_ends(exp, x):
    x = torch.full((5,), x)
    assert torch.equal(exp(x).nan_to_num(7.0, 8.0), x.exp().nan_to_num(7.0, 8.0))
