"""Rules on floats: torch's value and torch's derivative, at random and at singular points."""

import math

import pytest
import torch

from support.by_hand import array, binary, cast, kernel, loop, select, store, unary
from support.interpreted import interpret, run_with_gradients

X, Z, Y = array("x"), array("z"), array("y")
POINTS = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.7, *torch.randn(5, generator=torch.Generator().manual_seed(0)).tolist()]
POINTS += [-point for point in POINTS]


def mapped(expression):
    return kernel([X, Z, Y], [loop("i", X.size(), [store(Y, "i", expression)], is_parallel=True)])


def interpreted(expression, x, z):
    arrays = {"x": x, "z": z, "y": torch.zeros_like(x)}
    cotangent = torch.linspace(0.5, 1.5, len(x), dtype=torch.float64)
    outcome = run_with_gradients(mapped(expression), arrays, {}, {"y": cotangent})
    return outcome.arrays["y"], outcome.gradients["x"], outcome.gradients["z"]


def with_torch(function, x, z):
    x, z = x.clone().requires_grad_(), z.clone().requires_grad_()
    y = function(x, z)
    cotangent = torch.linspace(0.5, 1.5, len(x), dtype=torch.float64)
    return y.detach(), *torch.autograd.grad(y, [x, z], cotangent, allow_unused=True, materialize_grads=True)


def assert_agree(one, other):
    for mine, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-14, atol=0.0, equal_nan=True)


def half_away(x):
    return (x.detach().abs() + 0.5).floor().copysign(x.detach()) + 0 * x


UNARY = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sgn": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": half_away,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations(name):
    x = torch.tensor(POINTS, dtype=torch.float64)
    assert_agree(interpreted(unary(name, X["i"]), x, x), with_torch(lambda x, _: UNARY[name](x), x, x))


BINARY = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "min": torch.minimum,
    "max": torch.maximum,
    "atan2": torch.atan2,
    "pow": torch.pow,
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_operations(name):
    """Every point with every other: both zero, equal, of either sign."""
    x, z = torch.cartesian_prod(*[torch.tensor(POINTS[:14], dtype=torch.float64)] * 2).unbind(1)
    assert_agree(interpreted(binary(name, X["i"], Z["i"]), x, z), with_torch(BINARY[name], x, z))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2])
def test_integer_powers(exponent):
    x = torch.tensor(POINTS, dtype=torch.float64)
    assert_agree(interpreted(binary("pow", X["i"], exponent), x, x), with_torch(lambda x, _: x**exponent, x, x))


def test_remainders_and_floor_quotients():
    x, z = torch.cartesian_prod(*[torch.tensor([p for p in POINTS if p], dtype=torch.float64)] * 2).unbind(1)
    assert_agree(
        interpreted(binary("%", X["i"], Z["i"]), x, z), with_torch(lambda x, z: x - z * (x / z).detach().floor(), x, z)
    )
    y, dx, dz = interpreted(binary("//", X["i"], Z["i"]), x, z)
    assert torch.equal(y, (x / z).floor())
    assert not dx.any()
    assert not dz.any()


def test_remainder_has_torch_s_derivative():
    x, z = torch.randn(2, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).unbind(0)
    mine, theirs = interpreted(binary("%", X["i"], Z["i"]), x, z), with_torch(torch.remainder, x, z)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_norm_has_derivative_zero_at_zero():
    x = torch.tensor([0.0, 0.0, 3.0], dtype=torch.float64)
    z = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64)
    expression = unary("norm", X["i"] * X["i"] + Z["i"] * Z["i"])
    assert_agree(
        interpreted(expression, x, z),
        with_torch(lambda x, z: torch.linalg.vector_norm(torch.stack([x, z]), dim=0), x, z),
    )


def test_the_side_that_is_not_selected_has_no_part_in_the_derivative():
    x = torch.tensor([-1.0, 0.0, 4.0], dtype=torch.float64)
    y, dx, _ = interpreted(select(X["i"] > 0.0, unary("sqrt", X["i"]), 0.0), x, x)
    assert y.tolist() == [0.0, 0.0, 2.0]
    assert dx.tolist() == [0.0, 0.0, 1.5 * 0.25]


def test_casts_of_floats():
    x = torch.tensor([2.7, -2.7, 300.2, 0.0, math.nan, 1e10], dtype=torch.float64)
    y, dx, _ = interpreted(cast(cast(X["i"], "i32"), "f32") * X["i"], x, x)
    whole = torch.tensor([2.0, -2.0, 300.0, 0.0, -(2.0**31), -(2.0**31)], dtype=torch.float64)
    torch.testing.assert_close(y, whole * x, equal_nan=True)
    torch.testing.assert_close(dx, whole * torch.linspace(0.5, 1.5, 6, dtype=torch.float64))


COMPILED = {
    **{name: f"ti.{name}(a)" for name in UNARY if name not in ("neg", "sgn", "abs")},
    **{name: f"a {name} b" for name in ("+", "-", "*", "/", "//", "%")},
    **{name: f"ti.{name}(a, b)" for name in ("min", "max", "atan2", "pow")},
    "neg": "-a",
    "abs": "abs(a)",
}


@pytest.mark.parametrize("faithful", [False, True])
def test_values_agree_with_an_engine(lang64, tabled, faithful):
    points = torch.tensor(POINTS[:14], dtype=torch.float64)
    x, z = torch.cartesian_prod(points, points[points != 0]).unbind(1)
    theirs = tabled(lang64, list(COMPILED.values()), x, z)
    a, b = array("x", "f64"), array("z", "f64")
    for name, column in zip(COMPILED, theirs.T, strict=True):
        expression = unary(name, a["i"]) if name in UNARY else binary(name, a["i"], b["i"])
        made = kernel([a, b, array("y", "f64")], [loop("i", a.size(), [store(array("y", "f64"), "i", expression)])])
        mine = run_with_gradients(made, {"x": x, "z": z, "y": torch.zeros_like(x)}, {}, faithful=faithful).arrays["y"]
        torch.testing.assert_close(
            mine, column, rtol=1e-13, atol=1e-13, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_floats_are_exact_unless_asked_to_be_faithful():
    x = torch.tensor([0.1, 1 / 3], dtype=torch.float64)
    twice = mapped(X["i"] * X["i"])
    arrays = {"x": x, "z": x, "y": torch.zeros(2)}
    exact, faithful = (
        run_with_gradients(twice, arrays, {}).arrays["y"],
        run_with_gradients(twice, arrays, {}, faithful=True).arrays["y"],
    )
    assert torch.equal(exact, x * x)
    assert torch.equal(faithful, x.float() * x.float())


# torch's forward mode loads scripted functions of its own at its first use, and warns of itself.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_derivatives_of_derivatives():
    """What comes out is connected with what went in: autograd may go on, in either mode."""
    x = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    expression = unary("sin", X["i"]) * X["i"] * X["i"] + binary("%", X["i"], 0.7) * X["i"]

    def through(x):
        return interpret(mapped(expression), {"x": x, "z": x, "y": torch.zeros(4)}, {})["y"]

    assert torch.autograd.gradcheck(through, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(through, x)
