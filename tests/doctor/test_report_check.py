"""`ts.check`: lint, sanitizer and gradient check in one report; what could not be done is in it too."""

import inspect

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith._errors import CheckError
from tinsmith.doctor import _check, check, check_example
from tinsmith.linter import Finding
from tinsmith.testing import assert_differentiable

X = torch.linspace(0.2, 1.7, 6, dtype=torch.float64)


@pytest.fixture
def right(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def right(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.sin(x[i]) * x[i]

    return right


@pytest.fixture
def truncates(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def truncates(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            count = 0
            count += 3.5 * x[i]  # here
            y[i] = count

    return truncates


def find_line(op, text):
    """Return the number of the line of the op's kernel that holds `text`."""
    lines, first = inspect.getsourcelines(_function(op))
    return next(first + place for place, line in enumerate(lines) if text in line)


def _function(op):
    from tinsmith.engines import of_kernel

    return of_kernel(op.kernel).function_of(op.kernel)


def test_a_right_op(right):
    report = check(right, X)
    assert report.ok and report.was_complete, str(report)
    assert not report.of("error", "warning")
    assert report.looked == ("lint", "sanitizer", "gradient check")
    assert report.gradient.ok and list(report.gradients) == ["right"]
    assert report.name == "op `right`" and "gradient of right" in str(report)
    report.raise_if_failed()
    assert assert_differentiable(right, x=X).ok


def test_errors_of_all_parts_come_together(truncates):
    report = check(truncates, X)
    assert not report.ok
    findings = [one for one in report.findings if one.rule == "TS301"]
    assert [(one.line, one.severity) for one in findings] == [(find_line(truncates, "# here"), "error")]
    with pytest.raises(CheckError, match="TS301"):
        assert_differentiable(truncates, X)


def test_a_wrong_gradient_fails(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    @square.backward
    @lang64.kernel
    def square_backward(x: lang64.types.ndarray(), grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in x:
            grad_x[i] = 3.0 * x[i] * grad_y[i]

    report = check(square, X)
    assert not report.gradient.ok and not report.ok
    assert any(one.rule == "TS701" for one in report.findings)
    page = report.html()
    assert "wrong" in page and page.count('<img src="data:image/png') == 1
    with pytest.raises(CheckError) as raised:
        report.raise_if_failed()
    assert report.gradient.summary in str(raised.value) and str(raised.value).count("TS701") == 1


@pytest.mark.parametrize("part", ["lint", "sanitizer", "gradient check"])
def test_a_failing_part_is_a_finding_and_the_others_run(truncates, monkeypatch, part):
    def fail(*_, **__):
        raise RuntimeError("the engine\nis out of order")

    monkeypatch.setattr(_check, {"lint": "lint", "sanitizer": "sanitize", "gradient check": "gradcheck"}[part], fail)
    report = check(truncates, X)
    (lost,) = [one for one in report.findings if one.rule == "TS002"]
    assert lost.message == f"{part} of op `truncates` could not be run: RuntimeError: the engine"
    assert lost.severity == "error" and lost.line == find_line(truncates, "def truncates")
    assert not report.ok and not report.was_complete
    assert set(report.looked) == {"lint", "sanitizer", "gradient check"} - {part}
    assert part == "lint" or any(one.rule == "TS301" for one in report.findings)


def test_a_refusal_is_shown_in_full(right, monkeypatch):
    def refuse(*_, **__):
        raise ts.KernelError("`right` is odd\n  got    this\nWrite it so.")

    monkeypatch.setattr(_check, "sanitize", refuse)
    (lost,) = [one for one in check(right, X).findings if one.rule == "TS002"]
    assert lost.message.endswith("could not be run: KernelError: `right` is odd; got this; Write it so.")


def test_compiled_kernels_are_not_run_outside_their_arrays(lang64, monkeypatch):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def shifted(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i + 1] = x[i]  # tinsmith: ignore[TS109]  # here

    monkeypatch.setattr(_check, "gradcheck", lambda *_, **__: pytest.fail("it was run"))
    report = check(shifted, X)
    left_out = [one for one in report.findings if one.rule == "TS002"]
    assert [(one.severity, one.line) for one in left_out] == [("info", find_line(shifted, "# here"))]
    assert "gradient check of op `shifted` was left out" in left_out[0].message
    assert report.looked == ("lint", "sanitizer")
    assert not report.ok and report.gradient is None


@pytest.mark.parametrize("call", [((X, X), {}), ((X.reshape(2, 3, 1).bool(),), {}), ((X,), {"z": 1})])
def test_a_wrong_call_is_refused_as_the_op_refuses_it(right, call):
    arguments, named = call
    with pytest.raises(ts.TinsmithError) as by_op:
        right(*arguments, **named)
    with pytest.raises(type(by_op.value)) as by_check:
        check(right, *arguments, **named)
    assert str(by_check.value) == str(by_op.value)


def test_a_check_without_inputs_names_them(right):
    with pytest.raises(ts.ArgumentError, match=rf"ts\.check of op `{right.name}` got no inputs\n.*`ts\.check\("):
        check(right)


def test_other_objects_are_refused(right):
    with pytest.raises(ts.ArgumentError, match=r"ts\.check takes an op"):
        check(right.kernel, X)


FORMS = {
    "by position": lambda: (X,),
    "alone": lambda: X,
    "by name": lambda: {"x": X},
    "both": lambda: ((), {"x": X}),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_example(right, form):
    def small():
        return FORMS[form]()

    right.example(small)
    report = check_example(right, "small")
    assert report.ok and list(report.gradients) == ["right(small)"], str(report)
    assert report.name == "op `right(small)`"


def test_an_example_that_fails_is_a_finding_where_it_stands(right):
    @right.example
    def odd():
        raise KeyError("x")

    report = check_example(right, "odd")
    line = odd.__code__.co_firstlineno
    words = "example `odd` of op `right` could not be run: KeyError: 'x'"
    assert report.findings == [Finding("TS002", "error", __file__, line, 0, words)]


def test_an_op_checks_itself(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def halved(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            n = 0
            n += 2 * i
            y[i] = x[i] * 0.5 + n

    assert halved.lint() == ts.lint(halved) == []
    assert halved.check(torch.rand(5, dtype=torch.float64)).ok


def test_a_truncation_is_reported_once(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def count(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            n = 0
            n += 0.5 * x[i]
            m = 0
            m += x[i]  # only a run can tell
            y[i] = n + m

    report = check(count, torch.rand(3))
    errors = [(one.rule, one.severity, one.message.split(" ")[0]) for one in report.of("error")]
    assert errors == [("TS301", "error", "`n`"), ("TS301", "error", "`m`")]
    assert (
        " since line " in report.of("error")[0].message
        and " is cut to 0 in iteration " in report.of("error")[1].message
    )


def test_a_comment_turns_a_wrong_gradient_off(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    @square.backward
    @lang64.kernel
    def back(x: lang64.types.ndarray(), grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in x:
            grad_x[i] = x[i] * grad_y[i]  # tinsmith: ignore[TS701]

    assert check(square, torch.rand(3)).ok


def test_a_rounding_literal_is_reported_once(lang):
    array = "lang.types.ndarray(lang.f64, ndim=1)"
    text = f"""
def total(x: {array}, y: {array}):
    for i in x:
        s = 0.0
        s = s + x[i] * 0.1
        y[i] = s
"""
    op = ts.op("x[n] -> y[n]")(compile_text(lang, text))
    report = ts.check(op, torch.rand(4, dtype=torch.float64))
    assert [one.rule for one in report.findings if one.rule in ("TS305", "TS609") and one.line == 4] == ["TS609"]


def test_findings_about_unused_engine_gradients_are_set_aside(lang):
    def op(**how):
        @ts.op("x[n] -> y[n]", **how)
        @lang.kernel
        def steps(x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                z = x[i]
                while z > 1.0:  # here
                    z = 0.5 * z
                y[i] = z

        return steps

    ours, theirs = check(op(), 3.0 * X.float()), check(op(adjoint="engine"), 3.0 * X.float())
    assert [one.rule for one in ours.aside] == ["TS202"] and ours.findings == []
    assert str(ours).splitlines()[-1] == "right: nothing found  (lint, sanitizer, gradient check)"
    words = '1 warning holds only with adjoint="engine", which this op does not use: TS202 in line '
    assert f"{words}{find_line(op(), '# here')}" in str(ours).replace("\n", " ")
    assert theirs.aside == () and "TS202" in {one.rule for one in theirs.findings}
    assert theirs.verdict == "refused"


def test_a_refusal_that_a_comment_leaves_out_is_not_called_right(lang):
    @ts.op("x[n] -> y[1]", adjoint="engine")
    @lang.kernel
    def greatest(x: lang.types.ndarray(), y: lang.types.ndarray()):  # tinsmith: ignore[TS703]
        for i in x:
            lang.atomic_max(y[0], x[i])

    report = check(greatest, X.float())
    assert "TS703" not in {one.rule for one in report.findings}
    assert report.gradient.verdict == "refused" and report.verdict == "no errors"
    assert ": refused" in report.gradient.summary.splitlines()[0]


def test_uninitialized_memory_is_not_differentiated(lang, monkeypatch):
    @ts.op("x[n] -> y[n]", init={"y": "empty"})
    @lang.kernel
    def inner(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1, x.shape[0] - 1):
            y[i] = x[i + 1] - x[i - 1]  # here

    monkeypatch.setattr(_check, "gradcheck", lambda *_, **__: pytest.fail("it was run"))
    report = check(inner, X.float())
    assert [(one.rule, one.severity) for one in report.findings] == [("TS002", "info"), ("TS610", "error")]
    assert "an element that is never written may hold anything" in report.findings[0].message
    assert report.verdict == "wrong" and not report.ok
