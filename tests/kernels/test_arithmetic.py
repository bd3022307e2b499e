"""Functions by arithmetic alone, against torch in float64."""

# pyright: reportInvalidTypeForm=false

import math

import pytest
import torch

import tinsmith as ts
from tinsmith.kernels import ARITHMETIC

LEAST = 2.0**-126
"""The least number that is not 0 to both engines."""


def op_of(lang, make):
    function = make(lang)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = function(x[i])

    return ts.op("x[n] -> y[n]")(kernel)


@pytest.fixture
def exp(lang):
    return op_of(lang, ARITHMETIC["exp"])


@pytest.fixture
def log(lang):
    return op_of(lang, ARITHMETIC["log"])


@pytest.fixture
def tanh(lang):
    return op_of(lang, ARITHMETIC["tanh"])


def numbers_between(low, high, step):
    """Return every n-th float32 from one to another, of one sign."""
    ends = torch.tensor([low, high]).view(torch.int32).tolist()
    return torch.arange(ends[0], ends[1] + 1, step, dtype=torch.int32).view(torch.float32)


def furthest(actual, wanted):
    """Return the largest error in units in the last place."""
    unit = 2.0 ** (torch.frexp(wanted)[1].double() - 24)
    return ((actual.double() - wanted).abs() / unit).max().item()


def test_exp_is_within_two_units_in_the_last_place(exp):
    x = torch.linspace(-87.0, 88.72, 1_000_003)
    assert furthest(exp(x), x.double().exp()) < 2


def test_exp_of_small_numbers_and_zero(exp):
    x = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e-8, -1e-4])
    assert torch.equal(exp(x), x.exp())


@pytest.mark.parametrize("x", [math.inf, -math.inf, math.nan, 88.8, 1e30, -1e30, -110.0])
def test_exp_at_its_ends(exp, x):
    x = torch.full((5,), x)
    assert torch.equal(exp(x).nan_to_num(7.0, 8.0), x.exp().nan_to_num(7.0, 8.0))


@pytest.mark.parametrize("between", [(LEAST, 3.4028235e38, 1999), (0.5, 2.0, 17)], ids=["all", "around 1"])
def test_log_is_within_two_units_in_the_last_place(log, between):
    x = numbers_between(*between)
    assert furthest(log(x), x.double().log()) < 2


@pytest.mark.parametrize("x", [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, -1.0, -1e-30, -3e38, LEAST])
def test_log_at_its_ends(log, x):
    x = torch.full((5,), x)
    torch.testing.assert_close(log(x), x.log(), rtol=1e-7, atol=0, equal_nan=True)


def test_log_of_numbers_too_small_for_an_exponent_is_the_engines_own(log, lang):
    @lang.kernel
    def library(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            if x.shape[0] > 0:  # a branch, so that no strip takes it
                y[i] = lang.log(x[i])

    x = torch.tensor([1e-45, 1e-40, -1e-40, 1.1754942e-38])
    assert torch.equal(log(x), ts.op("x[n] -> y[n]")(library)(x))


@pytest.mark.parametrize("between", [(LEAST, 3.4028235e38, 1999), (0.5, 1.0, 7)], ids=["all", "where it bends"])
@pytest.mark.parametrize("sign", [1, -1])
def test_tanh_is_within_two_units_in_the_last_place(tanh, between, sign):
    x = sign * numbers_between(*between)
    assert furthest(tanh(x), x.double().tanh()) < 2


@pytest.mark.parametrize("x", [0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 9.0, -44.0, 1e-45])
def test_tanh_at_its_ends(tanh, x):
    x = torch.full((5,), x)
    assert torch.allclose(tanh(x), x.tanh(), rtol=1e-7, atol=LEAST, equal_nan=True)


TURNS = {
    "all": numbers_between(LEAST, 1048575.9, 499),
    "negative": -numbers_between(LEAST, 1048575.9, 499),
    "of a few turns": torch.linspace(-20.0, 20.0, 400_003),
    "closest to quarters": (torch.arange(1, 600_000).double() * (math.pi / 2)).float(),
}


@pytest.mark.parametrize("which", TURNS)
@pytest.mark.parametrize(("make", "exact"), [(ARITHMETIC["sin"], torch.sin), (ARITHMETIC["cos"], torch.cos)])
def test_sine_and_cosine_are_within_two_units_in_the_last_place(lang, make, exact, which):
    x = TURNS[which]
    assert furthest(op_of(lang, make)(x), exact(x.double())) < 2


def test_sine_of_zero(lang):
    x = torch.tensor([0.0, -0.0, 1e-40])
    assert op_of(lang, ARITHMETIC["sin"])(x).abs().max() < LEAST


def power_of(lang):
    power = ARITHMETIC["pow"](lang)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), e: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = power(x[i], e[i])

    return ts.op("x[n], e[n] -> y[n]")(kernel)


@pytest.mark.parametrize("size", [1, 20, 126], ids=["around 1", "ordinary", "all"])
def test_powers_are_within_two_units_in_the_last_place(lang, size):
    generator = torch.Generator().manual_seed(0)
    x = torch.exp2((2.0 * torch.rand(300_000, generator=generator) - 1.0) * size)
    e = (252.0 * torch.rand(300_000, generator=generator) - 126.0) / torch.log2(x)
    wanted = x.double() ** e.double()
    is_number = (wanted > 2.0 * LEAST) & (wanted < 2.0**127)
    assert is_number.sum() > 200_000
    assert furthest(power_of(lang)(x, e)[is_number], wanted[is_number]) < 0.6
    negative = power_of(lang)(-x[:1000], torch.full((1000,), 3.0))
    torch.testing.assert_close(negative, -(x[:1000] ** 3.0), rtol=2e-7, atol=LEAST)


def test_powers_at_their_ends_are_torchs(lang):
    size = [0.0, 1.0, 2.0, 0.5, 3.0, 1e30, 1e-30, 2.0**24 + 2, math.inf, 1.5, 7.0]
    ends = torch.tensor([*size, *(-one for one in size), math.nan])
    x, e = (one.flatten() for one in torch.meshgrid(ends, ends, indexing="ij"))
    torch.testing.assert_close(power_of(lang)(x, e), x**e, rtol=3e-7, atol=LEAST, equal_nan=True)
