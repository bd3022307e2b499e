"""A gradient check looks before it launches: what would harm the process, or mean nothing, is named and not run."""

import inspect

import pytest
import torch

import tinsmith as ts
from tinsmith.doctor import check
from tinsmith.doctor.sanitizer import _dry_run, _sanitize
from tinsmith.engines import of_kernel
from tinsmith.testing import assert_differentiable

X = torch.tensor([0.5, 1.5, 2.5, 3.5, 4.5])
INTEGERS = torch.tensor([4, 0, 2, 5, 1], dtype=torch.int32)


@pytest.fixture
def nothing_is_launched(monkeypatch):
    """Fail the test if an op is called: a compiled kernel could end the process."""
    monkeypatch.setattr(ts.Op, "__call__", lambda *_, **__: pytest.fail("the op was launched"))


LEAVES = "compiled kernels that leave their arrays harm memory"
BY_ZERO = "an integer by zero ends the process"


def wrong_indices(lang):
    """Return ops with inputs, the rule and a part of the reason, by what is wrong with a launch."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def neighbors(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i - 1] + x[i + 1]  # tinsmith: ignore[TS109]  # here

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def behind(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i + 1]  # tinsmith: ignore[TS109]  # here

    @ts.op("x[n], k[n]: i32 -> y[n]")
    @lang.kernel
    def gather(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in k:
            y[i] = x[k[i]]  # here

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def binned(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[int(2.0 * x[i])] += x[i]  # here

    return {
        "neighbors": (neighbors, (X,), "TS604", LEAVES),
        "behind": (behind, (X,), "TS604", LEAVES),
        "an index from data": (gather, (X, INTEGERS), "TS604", LEAVES),
        "an index from a float": (binned, (X,), "TS604", LEAVES),
    }


def wrong_values(lang):
    """Compare the values of ops that stay in their arrays with the reference."""

    @ts.op("x[n], k[n]: i32 -> y[n]")
    @lang.kernel
    def divided(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * (7 // k[i])  # here

    @ts.op("x[n], k[n]: i32 -> y[n]")
    @lang.kernel
    def remainder(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * (7 % k[i])  # here

    @ts.op("x[n] -> y[n]", init={"y": "empty"})
    @lang.kernel
    def garbage(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] += x[i]  # here

    @ts.op("x[n] -> y[n]", init={"y": "empty"})
    @lang.kernel
    def gaps(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1, x.shape[0]):
            y[i] = x[i]  # here

    return {
        "division": (divided, (X, INTEGERS), "TS607", BY_ZERO),
        "modulo": (remainder, (X, INTEGERS), "TS607", BY_ZERO),
        "uninitialized": (garbage, (X,), "TS602", "read before it is written may be anything"),
        "never written": (gaps, (X,), "TS610", "never written may hold anything"),
    }


NAMES = ["neighbors", "behind", "an index from data", "an index from a float"]
NAMES += ["division", "modulo", "uninitialized", "never written"]


@pytest.mark.usefixtures("nothing_is_launched")
@pytest.mark.parametrize("name", NAMES)
def test_dangerous_kernels_are_not_launched(lang, name):
    op, inputs, rule, reason = (wrong_indices(lang) | wrong_values(lang))[name]
    result = ts.gradcheck(op, *inputs)
    assert (result.verdict, result.ok) == ("not compared", False)
    assert {one.rule for one in result.findings} == {rule}
    line = find_line(op, "# here")
    assert {(one.line, one.severity) for one in result.findings} == {(line, "error")}
    first, second = result.summary.splitlines()
    assert first == f"the gradient of op `{op.name}`: not compared"
    assert second.endswith(f"{reason} (line {line}), so nothing was compared") or f"{reason}, " in second
    report = check(op, *inputs)
    assert report.verdict == "wrong" and rule in {one.rule for one in report.of("error")}


@pytest.mark.usefixtures("nothing_is_launched")
def test_ignore_comments_do_not_allow_dangerous_launches(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def behind(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i + 1]  # tinsmith: ignore[TS109, TS604]

    result = ts.gradcheck(behind, X)
    assert (result.findings, result.verdict, result.ok) == ([], "not compared", False)
    report = check(behind, X)
    assert (report.verdict, report.ok) == ("not checked", False)
    with pytest.raises(ts.CheckError, match="not compared"):
        assert_differentiable(behind, X)


@pytest.mark.usefixtures("nothing_is_launched")
def test_a_loop_that_may_never_end_is_not_launched(lang, monkeypatch):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def grow(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = x[i]
            while v > 0.0:  # here
                v = v * 1.5
            y[i] = v

    monkeypatch.setattr(_sanitize, "OPERATIONS", 4000)
    monkeypatch.setattr(_dry_run, "OPERATIONS", 4000)
    result = ts.gradcheck(grow, X)
    assert result.verdict == "not compared"
    assert (
        f"the `while` in line {find_line(grow, '# here')} had not ended after 799 turns" in result.findings[0].message
    )
    assert check(grow, X).verdict == "not checked"


def test_long_loops_that_end_are_compared_without_the_interpreter(lang, monkeypatch):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def shrink(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = x[i]
            while v > 1.0:
                v = v * 0.5
            y[i] = v

    monkeypatch.setattr(_sanitize, "OPERATIONS", 50)
    monkeypatch.setattr(_dry_run, "OPERATIONS", 50)
    result = ts.gradcheck(shrink, X)
    assert result.verdict == "right"
    assert "without the oracle: it would take more than 50 operations" in result.notes


def test_a_range_of_billions_is_stopped_and_not_listed(lang, monkeypatch):
    assert _sanitize.OPERATIONS == 400_000  # half a minute of them; here a few will do
    monkeypatch.setattr(_sanitize, "OPERATIONS", 10_000)

    @ts.op("x[n], k[n]: i32 -> y[n]")
    @lang.kernel
    def far(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            for _ in range(k[i]):
                y[i] += x[i]

    with pytest.raises(ts.ShapeError, match="was stopped after 10,000 operations"):
        ts.sanitize(far, torch.rand(1), torch.tensor([2**31 - 1], dtype=torch.int32))


def find_line(op, text):
    """Return the number of the line of the op's kernel that holds `text`."""
    lines, first = inspect.getsourcelines(of_kernel(op.kernel).function_of(op.kernel))
    return next(first + place for place, line in enumerate(lines) if text in line)
