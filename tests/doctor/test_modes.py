"""Batches, forward mode and second derivatives are held against single backward passes, and told in rows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tinsmith as ts
from tinsmith import passes
from tinsmith.doctor import as_json, check
from tinsmith.doctor.gradients import Modes, _modes
from tinsmith.ir import nodes, walk

X = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
ALL = ["vmap(grad)", "*b", "jacrev", "jvp", "second derivatives"]


def cubes(lang, **options):
    @ts.op("x[*b, n] -> y[*b, n]", **options)
    @lang.kernel
    def cubes(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    return cubes


def verdicts(result):
    return {one.name: one.verdict for one in result.modes}


def test_all_modes_of_a_right_op(lang):
    report = check(cubes(lang), X)
    assert report.ok and verdicts(report.gradient) == dict.fromkeys(ALL, "right")
    assert "  second derivatives  right" in report.gradient.summary
    (described,) = json.loads(as_json(report, Path.cwd()))["gradients"].values()
    assert described["verdict"] == "right"
    assert described["modes"][0] == {"mode": "vmap(grad)", "verdict": "right", "reason": ""}
    assert "jacrev" in report.html()
    assert max(map(len, str(report).splitlines())) <= 80


def test_a_call_with_batch_dims(lang):
    assert set(verdicts(ts.gradcheck(cubes(lang), X.reshape(2, 2))).values()) == {"right"}


def test_integers_and_shared_inputs_in_a_batch(lang64):
    @ts.op("x[*b, n], w[m], k[*b, n]: i32 -> y[*b, n]")
    @lang64.kernel
    def gather(
        x: lang64.types.ndarray(), w: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray()
    ):
        for i in x:
            y[i] = lang64.sin(x[i]) * w[k[i]]

    result = ts.gradcheck(gather, X, X + 0.3, torch.tensor([2, 0, 1, 2], dtype=torch.int32))
    assert verdicts(result) == dict.fromkeys(ALL, "right")


def test_without_a_graph_around_it(lang):
    with torch.no_grad():
        assert verdicts(ts.gradcheck(cubes(lang), X)) == dict.fromkeys(ALL, "right")


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e4, 1e8, 1e12, 1e20])
def test_inputs_of_all_sizes(lang64, size):
    @ts.op("x[n] -> square[n], inverse[n]")
    @lang64.kernel
    def powers(x: lang64.types.ndarray(), square: lang64.types.ndarray(), inverse: lang64.types.ndarray()):
        for i in x:
            square[i] = x[i] * x[i]
            inverse[i] = 1.0 / x[i]

    modes = verdicts(ts.gradcheck(powers, size * X))
    # Where a difference reaches over the pole at 0 there is nothing to compare with.
    assert modes.pop("second derivatives") == ("right" if size > 1 else "not compared")
    assert set(modes.values()) == {"right"}


def test_single_precision(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def narrow(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = lang.f32(0.0)
            v += lang.exp(x[i])
            y[i] = v

    result = ts.gradcheck(narrow, X.float())
    assert verdicts(result) == {
        "vmap(grad)": "right",
        "jacrev": "right",
        "jvp": "right",
        "second derivatives": "not compared",
    }


def _with_sums(expr):
    """Replace the products of an expression by sums."""
    expr = walk.rebuild(expr, _with_sums)
    return replace(expr, operator="+") if isinstance(expr, nodes.Binary) and expr.operator == "*" else expr


def test_a_broken_batch_is_found(lang, monkeypatch):
    batched = passes.batch_kernel

    def broken(*arguments):
        kernel = batched(*arguments)
        return replace(kernel, body=tuple(walk.transform(one, _with_sums) for one in kernel.body))

    monkeypatch.setattr(passes, "batch_kernel", broken)
    result = ts.gradcheck(cubes(lang), X)
    by_mode = verdicts(result)
    assert result.verdict == "wrong"
    assert "wrong" in (by_mode["vmap(grad)"], by_mode["*b"]) and by_mode["jvp"] == "right"
    assert {one.rule for one in result.findings} == {"TS701"}
    words = [one.message for one in result.findings]
    assert any(
        "gives a wrong derivative, although a plain backward pass gives the right one: " in one
        and "numbers differ, such as `x[" in one
        for one in words
    )


def test_a_broken_forward_mode_is_found(lang, monkeypatch):
    jvp = torch.func.jvp

    def wrong(*args):
        outputs, tangents = jvp(*args)
        return outputs, {name: 1.01 * one for name, one in tangents.items()}

    monkeypatch.setattr(torch.func, "jvp", wrong)
    result = ts.gradcheck(cubes(lang), X)
    assert verdicts(result) == dict.fromkeys(ALL, "right") | {"jvp": "wrong"}
    (one,) = result.findings
    assert one.message.startswith(
        "`jvp` gives a wrong derivative, although a plain backward pass gives the right one: along a random direction"
    )


def test_a_broken_second_derivative_is_found(lang, monkeypatch):
    true = Modes._difference_of_gradients

    def wrong(*args):
        return {name: 1.01 * one for name, one in true(*args).items()}

    monkeypatch.setattr(Modes, "_difference_of_gradients", wrong)
    result = ts.gradcheck(cubes(lang), X)
    assert verdicts(result)["second derivatives"] == "wrong" and result.verdict == "wrong"


def test_a_mode_that_raises_what_it_should_not_is_wrong(lang, monkeypatch):
    def broken(*_):
        raise ValueError("zip() argument 2 is longer")

    monkeypatch.setattr(_modes.Modes, "_jacrev", broken)
    result = ts.gradcheck(cubes(lang), X)
    assert str(result.modes[2]) == "wrong: it raises ValueError: zip() argument 2 is longer"


def test_a_refused_mode_is_not_wrong(lang):
    op = cubes(lang)

    @op.backward
    @lang.kernel
    def back(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            grad_x[i] = 3.0 * x[i] * x[i] * grad_y[i]

    result = ts.gradcheck(op, X)
    assert result.verdict == "right" and result.findings == []
    assert verdicts(result)["jvp"] == verdicts(result)["second derivatives"] == "refused"
    assert "cubes" in result.modes[-1].reason


@pytest.mark.parametrize(
    ("options", "x", "reason"),
    [
        ({"adjoint": "engine"}, X, "the gradient is the engine's own"),
        ({}, 0.0 * X, "nothing was tested"),
        ({}, torch.rand(5000), "the inputs are too large"),
    ],
)
def test_skipped_modes_say_why(lang, options, x, reason):
    result = ts.gradcheck(cubes(lang, **options), x)
    assert {str(one) for one in result.modes} == {f"not compared: {reason}"}


def test_modes_can_be_left_out(lang):
    assert ts.gradcheck(cubes(lang), X, modes=False).modes == ()
