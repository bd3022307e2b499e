"""`ts.gradcheck` on gradients that are wrong: who is to blame, where, and with which numbers."""

import linecache
import math
import os
import time

import pytest
import torch

import tinsmith as ts
from support.findings import read_pointed_text
from tinsmith.doctor._gradcheck import gradcheck
from tinsmith.doctor.gradients import _child_process
from tinsmith.doctor.gradients._differences import Slope
from tinsmith.doctor.gradients._verdict import Kind, Point, Tolerance, judge_point
from tinsmith.engines.python import _exact_numbers


def by_hand(lang, at=2, factor=3.0):
    """Make a square whose hand-written gradient is wrong at one element."""

    @lang.kernel
    def backward(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * grad_y[i] * x[i]
            if i == at:
                grad_x[i] = factor * grad_y[i] * x[i]

    @ts.op("x[n] -> y[n]", backward=backward)
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return square


def test_a_wrong_gradient_by_hand(lang):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    result = gradcheck(by_hand(lang), x, cotangents=torch.ones(4))
    assert not result.ok
    (wrong,) = result.findings
    assert (wrong.rule, wrong.severity) == ("TS701", "error")
    assert "the op's gradient is wrong by `x[2]`: the op says 9, the oracle 6, differences 6" in wrong.message
    assert read_line(wrong).startswith("def backward(x: ")  # it stores twice: which store is wrong nobody knows
    assert "`backward=`" in wrong.remedy
    assert "by a hand-written kernel: WRONG" in str(result)
    assert wrong.message in str(result)
    assert result.errors["x"].tolist() == [0.0, 0.0, 3.0, 0.0]
    assert gradcheck(by_hand(lang, factor=2.0), x).ok
    assert gradcheck(by_hand(lang), x, adjoint="source").ok


def read_line(finding):
    """Return the line that a finding names."""
    return linecache.getline(finding.path, finding.line).strip()


def test_the_store_of_a_wrong_gradient_is_named_where_there_is_one(lang):
    @lang.func
    def into(grad: lang.template(), value):
        grad[0] += value

    @lang.kernel
    def backward(
        x: lang.types.ndarray(),
        w: lang.types.ndarray(),
        k: lang.types.ndarray(),
        grad_y: lang.types.ndarray(),
        grad_x: lang.types.ndarray(),
        grad_w: lang.types.ndarray(),
        grad_k: lang.types.ndarray(),
        grad_b: lang.types.ndarray(),
    ):
        for i in x:
            grad_x[i] = w[0] * grad_y[i] * k[0] * 2.0
        for i in x:
            lang.atomic_add(grad_w[0], grad_y[i])
            into(grad_k, grad_y[i])

    @ts.op("x[n], w[1], k[1], b[1] -> y[n]", backward=backward)
    @lang.kernel
    def scaled(
        x: lang.types.ndarray(),
        w: lang.types.ndarray(),
        k: lang.types.ndarray(),
        b: lang.types.ndarray(),
        y: lang.types.ndarray(),
    ):
        for i in x:
            y[i] = x[i] * w[0] * k[0] + b[0]

    findings = gradcheck(scaled, torch.tensor([1.0, 2.0, 4.0]), *torch.tensor([[3.0], [2.0], [5.0]])).findings
    of = {one.message.partition("`")[2][0]: one for one in findings if one.rule == "TS701"}
    assert set(of) == {"x", "w", "k", "b"}, findings
    assert read_pointed_text(of["x"]).startswith("grad_x[i] = w[0]")
    assert read_pointed_text(of["w"]).startswith("grad_w[0], grad_y[i])")
    assert read_line(of["k"]) == read_line(of["b"]) == "def backward("  # a function stores it; nothing does


def test_hints_about_a_zero_gradient_point_at_a_load_of_the_input(lang):
    """Hints are about the function and its inputs, not about who wrote the gradient."""
    (hint,) = gradcheck(by_hand(lang, at=-1), torch.zeros(3)).findings
    assert hint.rule == "TS705"
    assert read_pointed_text(hint).startswith("x[i] * x[i]")


def test_the_worst_error_is_reported(lang):
    result = gradcheck(by_hand(lang, at=-1), torch.rand(3))
    assert result.ok

    @lang.kernel
    def backward(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            grad_x[i] = (2.0 + i) * grad_y[i] * x[i]

    op = ts.op("x[n] -> y[n]", backward=backward)(by_hand(lang).kernel)
    (wrong,) = gradcheck(op, torch.ones(4), cotangents=torch.ones(4)).findings
    assert "wrong by 3 of 4 elements of `x`, as `x[3]`: the op says 5, the oracle 2, differences 2" in wrong.message


@pytest.mark.parametrize("is_covered", [True, False])
def test_one_wrong_number_of_many(lang, is_covered, monkeypatch):
    op, x = by_hand(lang, at=4321), torch.rand(6000) + 0.5
    if not is_covered:
        monkeypatch.setattr("tinsmith.doctor._gradcheck.OPERATIONS", 100)
    (wrong,) = gradcheck(op, x).findings
    assert wrong.rule == "TS701"
    assert "wrong by `x[4321]`: the op says" in wrong.message
    assert ("the oracle" in wrong.message) == is_covered


def test_wrong_numbers_in_single_precision_without_the_oracle(lang, monkeypatch):
    @lang.kernel
    def backward(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            grad_x[i] = lang.cos(x[i]) * grad_y[i]
            if i >= 2200:
                grad_x[i] = 0.0

    @ts.op("x[n] -> y[n]", backward=backward)
    @lang.kernel
    def waves(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = lang.f32(0.0)
            v += lang.sin(x[i])
            y[i] = v

    monkeypatch.setattr("tinsmith.doctor._gradcheck.OPERATIONS", 100)
    (wrong,) = gradcheck(waves, torch.rand(4400) * 0.5, cotangents=torch.ones(4400) * 1.5).findings
    assert wrong.severity == "error"
    assert "the op's gradient is wrong by `x[" in wrong.message
    assert "]`: the op says 0, differences 1." in wrong.message


def test_a_small_error_is_seen(lang64):
    assert not gradcheck(by_hand(lang64, factor=2.001), torch.rand(4)).ok
    assert gradcheck(by_hand(lang64, factor=2.001), torch.rand(4), rtol=1e-2).ok


def test_a_gradient_that_is_infinite(lang):
    @lang.kernel
    def backward(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * grad_y[i] * x[i]
            if x[i] < 0.5:
                grad_x[i] = 1.0 / x[i]

    op = ts.op("x[n] -> y[n]", backward=backward)(by_hand(lang).kernel)
    (wrong,) = gradcheck(op, torch.tensor([0.0, 1.0])).findings
    assert wrong.rule == "TS701"
    assert "by `x[0]`: the op says inf, the oracle 0, differences 0" in wrong.message


def test_an_engine_s_own_reverse_mode_is_judged(lang64):
    @ts.op("x[n] -> y[1]")
    @lang64.kernel
    def greatest(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            lang64.atomic_max(y[0], x[i])  # here

    x = torch.tensor([1.0, 3.0, 2.0])
    assert gradcheck(greatest, x).ok
    result = gradcheck(greatest, x, adjoint="engine")
    assert not result.ok
    (finding,) = result.findings
    assert finding.rule == "TS701"
    assert "the oracle" in finding.message
    assert read_pointed_text(finding).startswith("x[i])")
    assert "by the engine's own reverse mode: WRONG" in str(result)


def test_a_select_that_hides_a_root(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def guarded(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.select(x[i] > 0.0, lang64.sqrt(x[i]), 0.0)

    x = torch.tensor([0.0, 4.0])
    assert gradcheck(guarded, x).ok
    result = gradcheck(guarded, x, adjoint="engine")
    assert not result.ok
    assert "the op says nan, the oracle 0" in result.findings[0].message
    assert 'leave out adjoint="engine"' in result.findings[0].remedy


def test_a_refused_gradient_is_reported(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def noisy(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i]
            if lang64.random() > 2.0:
                y[i] = 0.0

    x = torch.rand(3)
    assert gradcheck(noisy, x).ok
    result = gradcheck(noisy, x, adjoint="engine")
    assert not result.ok
    (refused,) = result.findings
    assert (refused.rule, refused.severity) == ("TS703", "error")
    assert "the gradient is refused: " in refused.message
    assert result.inputs == ()
    assert "nothing to compare" in str(result)
    assert (result.verdict, str(result).splitlines()[0]) == (
        "refused",
        "the gradient of op `noisy`, by the engine's own reverse mode: refused",
    )


def test_an_engine_that_dies_of_a_kernel(lang64, monkeypatch):
    """Its reverse mode runs in a process of its own. Here it is that process which is killed."""
    mine = os.getpid()
    whole = _child_process.pull_back
    monkeypatch.setattr(
        _child_process, "pull_back", lambda *given: whole(*given) if os.getpid() == mine else os.abort()
    )
    result = gradcheck(by_hand(lang64), torch.rand(3), adjoint="engine")
    assert not result.ok
    assert "the engine's reverse mode kills the process that it runs in; ended by SIGABRT" in result.findings[0].message


def test_an_engine_that_hangs(lang64, monkeypatch):
    monkeypatch.setattr(_child_process, "SECONDS", 2.0)
    monkeypatch.setattr(_child_process, "pull_back", lambda *_: time.sleep(60))
    result = gradcheck(by_hand(lang64), torch.rand(3), adjoint="engine")
    assert "the backward pass did not end in 2 s, in a process of its own" in result.findings[0].message


def test_settings_of_the_engine_are_those_of_this_process(lang64):
    """The process that the reverse mode runs in has float64 as its default, as this one."""

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def third(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * (1.0 / 3.0)

    result = gradcheck(third, torch.rand(3).double(), adjoint="engine", rtol=1e-14, atol=1e-14, eps=1e-3)
    torch.testing.assert_close(result.inputs[0].op, result.inputs[0].oracle, rtol=1e-14, atol=1e-15)


def test_an_op_with_a_field_is_judged_in_this_process(lang64):
    table = lang64.field(lang64.f64, 3)
    table.from_torch(torch.tensor([1.0, 2.0, 3.0]).double())

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def scaled(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * table[i]

    assert gradcheck(scaled, torch.rand(3), adjoint="engine").ok


def test_the_oracle_without_differences(lang64, monkeypatch):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def bent(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.tanh(x[i])

    monkeypatch.setitem(_exact_numbers.FLOAT_UNARY, "tanh", lambda v: v.detach().tanh() + 5.0 * (v - v.detach()))
    result = gradcheck(bent, torch.rand(3))
    assert result.ok
    assert result.findings[0].severity == "warning"
    assert "the oracle alone differs by 3 of 3 elements" in result.findings[0].message


def test_differences_without_the_oracle(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def steps(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] + 1e-3 * lang64.floor(x[i] * 1e10)

    result = gradcheck(steps, torch.rand(2))
    assert result.ok
    assert {one.rule for one in result.findings} == {"TS702"}


def test_values_that_change_from_call_to_call(lang64):
    @ts.op("x[n] -> y[n]", adjoint="engine")
    @lang64.kernel
    def noisy(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * lang64.random()

    findings = gradcheck(noisy, torch.rand(3)).findings
    assert "TS704" in {one.rule for one in findings}
    (values,) = [one for one in findings if one.rule == "TS704"]
    assert "at one call and" in values.message


# The verdict ------------------------------------------------------------------------------------

SMOOTH = Slope(2.0, 2.0, 2.0, 1e-9)
KINK = Slope(0.0, -1.0, 1.0, 1e-9, "kink")
JUMP = Slope(1e6, 0.0, 1e6, 1e-9, "jump")


@pytest.mark.parametrize(
    ("op", "oracle", "slope", "kind"),
    [
        (2.0, 2.0, SMOOTH, Kind.RIGHT),
        (2.0, None, SMOOTH, Kind.RIGHT),
        (3.0, 2.0, SMOOTH, Kind.WRONG),
        (3.0, None, SMOOTH, Kind.WRONG),
        (3.0, 4.0, SMOOTH, Kind.ALL_DIFFER),
        (2.0, 3.0, SMOOTH, Kind.ORACLE),
        (2.00001, 2.0, SMOOTH, Kind.WRONG),
        (2.0, 2.00001, SMOOTH, Kind.ORACLE),
        (3.0, 3.0, SMOOTH, Kind.DIFFERENCES),
        (math.nan, 2.0, SMOOTH, Kind.WRONG),
        (0.5, 0.5, KINK, Kind.AT_KINK),
        (1.0, 0.0, KINK, Kind.CONVENTION),
        (1.0, None, KINK, Kind.CONVENTION),
        (1.1, 0.0, KINK, Kind.WRONG),
        (math.nan, 0.0, KINK, Kind.WRONG),
        (math.inf, math.inf, JUMP, Kind.AT_KINK),
        (0.0, None, JUMP, Kind.CONVENTION),
        (math.nan, 0.0, JUMP, Kind.WRONG),
    ],
)
def test_judging_which_of_three_derivatives_is_right(op, oracle, slope, kind):
    assert judge_point(Point(op, oracle, slope), Tolerance(1e-6, 1e-8), Tolerance(1e-4, 1e-6), 1.0) is kind


def test_a_gradient_by_hand_that_leaves_out_what_was_not_zeroed(lang):
    """Whatever the memory holds: zeros would be right here, and often are there."""

    @lang.kernel
    def tail(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1, x.shape[0]):
            y[i] = 2.0 * x[i]

    @lang.kernel
    def back(grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in range(1, grad_y.shape[0]):
            grad_x[i] = 2.0 * grad_y[i]

    x = torch.rand(4)
    assert ts.gradcheck(ts.op("x[n] -> y[n]", backward=back)(tail), x).verdict == "right"
    left = ts.gradcheck(ts.op("x[n] -> y[n]", init={"grad_x": "empty"}, backward=back)(tail), x)
    assert left.verdict == "wrong" and left.findings[0].rule == "TS701"
    assert not torch.are_deterministic_algorithms_enabled()
