"""Where all derivatives are 0 or none is finite, nothing was tested. A check says so, and which inputs tell more."""

import pytest
import torch

import tinsmith as ts
from tinsmith.doctor import check
from tinsmith.testing import assert_differentiable

X = torch.tensor([0.5, 1.5, 2.5])


def splat(lang):
    @ts.op("mean[g, 2], size[g] -> image[h, w]")
    @lang.kernel
    def splat(mean: lang.types.ndarray(), size: lang.types.ndarray(), image: lang.types.ndarray()):
        for g in size:
            for r, c in lang.ndrange(image.shape[0], image.shape[1]):
                d = ((c - mean[g, 0]) ** 2 + (r - mean[g, 1]) ** 2) / (size[g] * size[g])
                if d < 9.0:
                    image[r, c] += lang.exp(-0.5 * d)  # here

    return splat


def test_a_gradient_without_effect_is_untested_and_inputs_are_proposed(lang):
    op, mean, size = splat(lang), torch.tensor([[-50.0, -40.0]]), torch.tensor([0.3])
    report = check(op, mean, size, h=4, w=5)
    assert (report.verdict, report.gradient.verdict, report.ok) == ("not tested", "not tested", True)
    (zeros,) = [one for one in report.findings if one.rule == "TS705"]
    assert zeros.severity == "warning"
    assert zeros.message.startswith("every derivative by `mean` and `size` is 0 at these inputs, where a right")
    assert "nothing was tested; try other inputs" in zeros.message
    summary = report.gradient.summary
    assert "not tested, since all derivatives are 0 at these inputs" in summary.splitlines()[0]
    assert " never ran at these inputs, so not tested" in summary
    assert max(map(len, str(report).splitlines())) <= 80
    with pytest.raises(ts.CheckError, match=r"mean = .*torch\.rand"):
        assert_differentiable(op, mean, size, h=4, w=5)

    proposed = {"torch": torch}
    exec(zeros.remedy, proposed)
    better = check(op, proposed["mean"], proposed["size"], h=4, w=5)
    assert better.verdict == "right" and "TS705" not in {one.rule for one in better.findings}


def test_one_input_of_several(lang):
    @ts.op("x[n], k[n] -> y[n]")
    @lang.kernel
    def masked(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]
            if x[i] < 0.0:
                y[i] += x[i] * k[i]

    report = check(masked, X, X)
    (zeros,) = report.findings
    assert (report.verdict, zeros.rule, zeros.severity) == ("right", "TS705", "info")
    assert "the gradient by `k` was not tested; try other inputs" in zeros.message
    assert zeros.remedy == "torch.manual_seed(0)\nx = -torch.rand(3)\nk = -torch.rand(3)"
    assert report.gradient.summary.splitlines()[0].endswith("right, but not tested by `k`")
    assert check(masked, -X, X).findings == []


def test_proposals_stay_inside_arrays_and_keep_the_dtype(lang64):
    @ts.op("table[m], x[n] -> y[n]")
    @lang64.kernel
    def look_up(table: lang64.types.ndarray(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = table[int(x[i])] * lang64.max(x[i] - 1.5, 0.0)

    double = torch.float64
    result = ts.gradcheck(look_up, torch.ones(4, dtype=double), torch.tensor([0.5, 1.25], dtype=double))
    (zeros,) = result.findings
    assert result.verdict == "not tested"
    proposed = {"torch": torch, "table": torch.ones(4, dtype=double)}
    exec(zeros.remedy, proposed)
    assert proposed["x"].dtype == double and proposed["x"].min() >= 0.0 and proposed["x"].max() < 4.0
    assert ts.gradcheck(look_up, proposed["table"], proposed["x"]).verdict == "right"


def test_no_inputs_are_proposed_if_none_can_change(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def steps(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.floor(x[i])

    (zeros,) = ts.gradcheck(steps, X).findings
    assert zeros.message.endswith("nothing was tested") and zeros.remedy == ""


@pytest.mark.parametrize(
    ("x", "verdict", "words"),
    [
        (-X, "not tested", "no derivative is finite at these inputs"),
        (X[:0], "not tested", "the input is empty at these inputs"),
        (X, "right", ": right"),
    ],
)
def test_without_a_finite_derivative_nothing_was_tested(lang, x, verdict, words):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def roots(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sqrt(x[i])

    result = ts.gradcheck(roots, x)
    assert result.verdict == verdict
    assert words in result.summary.splitlines()[0]


def test_outputs_of_integers_have_no_derivative(lang):
    @ts.op("x[n] -> y[n]: i32")
    @lang.kernel
    def whole(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = int(x[i])

    result = ts.gradcheck(whole, X)
    assert result.verdict == "nothing to differentiate"
    assert result.notes == ("no output is a tensor of floats, so no gradient was compared",)
    with pytest.raises(ts.CheckError, match="no output is a tensor of floats"):
        assert_differentiable(whole, X)


def test_lines_that_never_ran_are_noted(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def branches(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if x[i] > 9.0:
                v = x[i] * x[i]
                y[i] = v
            else:
                y[i] = 2.0 * x[i]

    notes = ts.gradcheck(branches, X).notes
    assert [one.startswith("lines ") and one.endswith("never ran at these inputs, so not tested") for one in notes] == [
        *[False] * (len(notes) - 1),
        True,
    ]
    assert not any("never ran" in one for one in ts.gradcheck(branches, 4.0 * X).notes)
