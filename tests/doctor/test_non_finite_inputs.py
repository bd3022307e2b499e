"""Where inputs are infinite or NaN, every check says so, and blames no kernel for what follows from it."""

# pyright: reportInvalidTypeForm=false, reportFunctionMemberAccess=false, reportOptionalMemberAccess=false

import math

import pytest
import torch

import tinsmith as ts
from tinsmith.doctor import check
from tinsmith.testing import assert_differentiable

ODD = pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
D = torch.float64


def square(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 2

    return square


def cut(lang):
    @ts.op("x[n], far[n] -> y[n]")
    @lang.kernel
    def cut(x: lang.types.ndarray(), far: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.min(x[i] * x[i], far[i])

    return cut


@ODD
def test_a_check_names_the_element_and_finds_nothing_wrong(lang64, odd):
    op, x = square(lang64), torch.tensor([1.0, odd, 2.0], dtype=D)
    report = check(op, x)
    assert (report.verdict, report.ok, report.gradient.verdict) == ("not checked", False, "not compared")
    assert {one.rule: one.severity for one in report.findings} == {"TS002": "error", "TS606": "warning"}
    words = f"`x` is not finite in 1 of 3 elements: `x[1]` is {odd}"
    assert all(words in one.message for one in report.findings)
    assert words in ts.gradcheck(op, x).summary
    with pytest.raises(ts.CheckError, match=r"`x\[1\]` is "):
        assert_differentiable(op, x)
    assert check(op, x[[0, 2]]).verdict == "right"


@ODD
def test_a_layer_is_checked_like_an_op(lang64, odd):
    x, y = (lang64.field(lang64.f64, 3, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def cubes():
        for i in x:
            y[i] = x[i] ** 3

    layer = ts.EmptyTin().register_kernel(cubes)
    layer = layer.register_input_field(x).register_output_field(y).finish()
    report = check(layer, torch.tensor([1.0, 2.0, odd], dtype=D))
    assert report.verdict == "not checked"
    assert "[2]` is " in report.of("error")[0].message


def test_a_scalar_is_named_too(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def scaled(x: lang64.types.ndarray(), k: lang64.f64, y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * k

    x = torch.tensor([1.0, 0.0, 2.0], dtype=D)
    report = check(scaled, x, math.inf)
    assert report.verdict == "not checked"
    assert any("`k` is inf" in one.message for one in report.of("error"))


def test_beside_an_infinite_bound_the_other_inputs_are_compared(lang64):
    """An infinity may be meant, if outputs are finite: then differences by finite inputs are as good as ever."""
    op, x = cut(lang64), torch.tensor([1.0, 2.0, 3.0], dtype=D)
    report = check(op, x, torch.tensor([math.inf, 1.0, 20.0], dtype=D))
    assert (report.verdict, report.findings) == ("right", [])
    assert [one.name for one in report.gradient.inputs] == ["x"]
    assert "nothing was compared by `far`: `far` is not finite in 1 of 3 elements" in report.gradient.summary


def test_a_wrong_gradient_beside_an_infinite_bound_is_found(lang64):
    array = lang64.types.ndarray()

    @lang64.kernel
    def backward(x: array, grad_y: array, grad_x: array, grad_far: array):
        for i in x:
            grad_x[i] = grad_y[i] * x[i]  # 2 x would be right
            grad_far[i] = 0.0

    @ts.op("x[n], far[n] -> y[n]", backward=backward)
    @lang64.kernel
    def cut(x: array, far: array, y: array):
        for i in x:
            y[i] = lang64.min(x[i] * x[i], far[i])

    result = ts.gradcheck(cut, torch.rand(3, dtype=D), torch.full((3,), math.inf, dtype=D))
    assert result.verdict == "wrong"


def test_an_operation_of_finite_numbers_is_still_to_blame(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def logarithms(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.log(x[i])

    (finding,) = ts.sanitize(logarithms, torch.tensor([math.inf, -2.0, 1.0], dtype=D))
    assert (finding.rule, finding.severity) == ("TS606", "error")
    assert "log(-2), of finite operands" in finding.message


@ODD
def test_cotangents_must_be_finite(lang64, odd):
    x = torch.rand(3, dtype=D)
    with pytest.raises(ts.ArgumentError, match=r"(?s)takes finite cotangents\n.*`y\[0\]` is "):
        ts.gradcheck(square(lang64), x, cotangents=torch.tensor([odd, 1.0, 2.0], dtype=D))


@ODD
@pytest.mark.parametrize("what", ["state", "inputs", "parameters"])
def test_a_check_of_a_scan_names_what_was_passed(lang64, what, odd):
    op = square(lang64)

    def step(state, row, parameter):
        return state + op(row) * parameter, None

    given = {name: torch.full(shape, 0.5, dtype=D) for name, shape in SHAPES.items()}
    given[what].view(-1)[1] = odd
    with pytest.raises(ts.ArgumentError, match=rf"(?s)takes finite numbers.*{what}.* is not finite in 1 of"):
        ts.scan.check(step, given["state"], given["inputs"], parameters=given["parameters"])


SHAPES = {"state": (3,), "inputs": (4, 3), "parameters": (3,)}


def test_a_scan_beside_an_infinite_bound_is_compared(lang64):
    op = cut(lang64)

    def step(state, far):
        return op(state, far) * 0.5, None

    far = torch.tensor([math.inf, 1.0, 0.2], dtype=D).expand(3, 3)
    assert ts.scan.check(step, torch.tensor([1.0, 2.0, 3.0], dtype=D), far.clone()).verdict == "right"
