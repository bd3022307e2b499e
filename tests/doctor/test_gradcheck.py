"""`ts.gradcheck` on gradients that are right: of all kinds of ops, in both precisions, few numbers and many."""

import warnings

import numpy as np
import pytest
import torch
from torch.func import vmap

import cases
import tinsmith as ts
from support.findings import read_pointed_text
from tinsmith.doctor._gradcheck import gradcheck
from tinsmith.ir import NotCovered
from tinsmith.kernels import splat
from tinsmith.testing import assert_differentiable

pytestmark = pytest.mark.thinned(8)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_the_table_of_ops_in_double_precision(lang64, case):
    result = gradcheck(case.raw_op(lang64, torch.float64), *case.inputs(torch.float64), **case.keywords)
    assert result.ok, result
    assert result.findings == []
    assert not any("without the oracle" in note for note in result.notes)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_the_table_of_ops_in_single_precision(lang, case):
    result = gradcheck(case.raw_op(lang, torch.float32), *case.inputs(torch.float32), **case.keywords)
    assert result.ok, result
    assert result.findings == []


@pytest.mark.parametrize("name", ["square", "convolution", "scatter", "matrix_vector", "batched"])
def test_an_engine_s_own_reverse_mode_where_it_is_right(lang64, name):
    case = next(one for one in cases.ALL if one.name == name)
    result = gradcheck(
        case.raw_op(lang64, torch.float64), *case.inputs(torch.float64), adjoint="engine", **case.keywords
    )
    assert result.ok, result
    assert "by the engine's own reverse mode: right" in str(result)


def conv(lang, **options):
    @ts.op("x[n], k[m] -> y[n - m + 1]", **options)
    @lang.kernel
    def conv(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    return conv


def test_the_text_of_a_result(lang):
    result = gradcheck(conv(lang), torch.rand(6), torch.rand(3))
    assert result.ok
    assert result.name == "conv"
    assert str(result).startswith(
        "the gradient of op `conv`, generated from the kernel's source: right\n  in float64\n"
    )
    assert "central differences of the op, step 1e-06, each element" in str(result)
    assert "x  (6)  op - oracle" in str(result)
    x, k = result.inputs
    assert (x.name, k.name) == ("x", "k")
    assert x.op.dtype == x.oracle.dtype == x.differences.dtype == torch.float64
    torch.testing.assert_close(x.op, x.oracle, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(x.op, x.differences, rtol=1e-6, atol=1e-8)
    assert set(result.errors) == {"x", "k"}
    assert isinstance(result.errors["x"], np.ndarray)
    assert result.errors["x"].shape == (6,)
    assert result.errors["x"].max() < 1e-12


def test_float32_is_compared_with_float64(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def sums(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            total = lang.f32(0.0)
            for j in range(i + 1):
                total += lang.sin(x[j])
            y[i] = total

    result = gradcheck(sums, torch.rand(5))
    assert result.ok
    assert result.notes[0] == "in the op's own precision, which is less than float64"
    assert "central differences of its interpreted kernels, in float64" in result.notes[1]
    assert 0 < result.errors["x"].max() < 1e-5


def test_inputs_are_not_changed_and_integers_not_differentiated(lang):
    @ts.op("x[n], k[m]: i32 -> y[m], c[m]: i32")
    @lang.kernel
    def gather(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray(), c: lang.types.ndarray()):
        for i in k:
            y[i] = x[k[i]] ** 2
            c[i] = k[i]

    x, k = torch.rand(4, requires_grad=True), torch.tensor([0, 3, 3], dtype=torch.int32)
    before, state = x.detach().clone(), torch.get_rng_state()
    result = gradcheck(gather, x, k=k)
    assert result.ok
    assert [one.name for one in result.inputs] == ["x"]
    assert torch.equal(x, before)
    assert x.grad is None
    assert torch.equal(state, torch.get_rng_state())


def test_an_op_of_integers_has_nothing_to_differentiate(lang):
    @ts.op("k[n]: i32 -> y[n]: i32")
    @lang.kernel
    def doubled(k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in k:
            y[i] = 2 * k[i]

    result = gradcheck(doubled, torch.arange(3, dtype=torch.int32))
    assert result.ok
    assert result.inputs == ()
    assert result.verdict == "nothing to differentiate"
    assert str(result) == (
        "the gradient of op `doubled`: nothing to differentiate\n"
        "  no input is a tensor of floats, so no gradient was compared"
    )


def test_an_op_that_makes_floats_of_integers_has_nothing_to_differentiate(lang):
    @ts.op("k[n]: i32 -> y[n]: f32")
    @lang.kernel
    def halved(k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in k:
            y[i] = 0.5 * k[i]

    k = torch.arange(3, dtype=torch.int32)
    assert gradcheck(halved, k).verdict == gradcheck(halved, k, adjoint="engine").verdict == "nothing to differentiate"
    report = ts.check(halved, k)
    assert report.ok and report.verdict == "no errors"
    assert "the gradient of op `halved`: nothing to differentiate" in str(report)
    report.raise_if_failed()
    with pytest.raises(ts.CheckError) as refused:
        assert_differentiable(halved, k)  # whoever asserts it means a gradient
    assert str(refused.value) == (
        "the gradient of op `halved`: nothing to differentiate\n"
        "  no input is a tensor of floats, so no gradient was compared\n"
        "  Pass tensors of floats: an op of integers alone has no gradient."
    )


def test_cotangents_that_are_given(lang64):
    x, k = torch.rand(6).double(), torch.rand(3).double()
    given = torch.tensor([1.0, 0.0, 0.0, 2.0]).double()
    result = gradcheck(conv(lang64), x, k, cotangents=given)
    torch.testing.assert_close(result.inputs[1].op, x[:3] + 2 * x[3:])
    assert gradcheck(conv(lang64), x, k, cotangents={"y": given}).ok
    with pytest.raises(ts.ShapeError, match="cotangent of output `y`"):
        gradcheck(conv(lang64), x, k, cotangents=given[:2])


def test_batches_scalars_vectors_fields_and_chains(lang64):
    table = lang64.field(lang64.f64, 3)
    table.from_torch(torch.tensor([1.0, 2.0, 3.0]).double())

    @lang64.kernel
    def first(
        p: lang64.types.ndarray(dtype=lang64.math.vec3, ndim=1),
        a: float,
        t: lang64.types.ndarray(dtype=lang64.math.vec3, ndim=1),
    ):
        for i in p:
            t[i] = p[i] * a * table[i % 3]

    @lang64.kernel
    def second(t: lang64.types.ndarray(dtype=lang64.math.vec3, ndim=1), y: lang64.types.ndarray(ndim=1)):
        for i in t:
            y[i] = t[i].norm() + t[i].x ** 3

    op = ts.chain("p[*b, n, 3], a[] -> y[*b, n]", [first, second], scratch="t[*b, n, 3]")
    result = gradcheck(op, torch.rand(2, 4, 3).double(), torch.tensor(0.7).double())
    assert result.ok, result
    assert [one.name for one in result.inputs] == ["p", "a"]
    assert result.findings == []


def test_random_numbers_are_the_same_at_every_call(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def dropout(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            if lang64.random() > 0.3:
                y[i] = lang64.sin(x[i]) * lang64.random()

    x = torch.rand(20)
    state = torch.get_rng_state()
    result = gradcheck(dropout, x)
    assert torch.equal(state, torch.get_rng_state())
    assert result.ok, result
    assert result.errors["x"].max() < 1e-12


def test_many_numbers_are_checked_along_directions(lang):
    result = gradcheck(conv(lang), torch.rand(5000), torch.rand(3))
    assert result.ok
    assert "along 8 random directions an input, for 5,003 elements" in str(result)
    assert result.inputs[0].differences is None
    assert result.inputs[0].directions == 8
    assert 0.0 < result.inputs[0].along < 1e-2
    assert f"op - differences {result.inputs[0].along:.1e} along directions" in result.summary


@pytest.mark.costly
def test_slow_kernels_are_checked_without_the_interpreter(lang64, monkeypatch):
    monkeypatch.setattr("tinsmith.doctor._gradcheck.SECONDS", 1e6)
    result = gradcheck(conv(lang64), torch.rand(1000), torch.rand(200))
    assert result.ok
    assert "without the oracle: it would take more than 400,000 operations" in result.notes
    assert result.inputs[0].oracle is None
    assert result.inputs[0].reference is result.inputs[0].differences
    assert result.errors["x"].max() < 1e-6


def test_an_engine_s_gradient_where_the_source_is_not_covered(lang64, monkeypatch):
    def refused(*_args, **_named):
        raise NotCovered("`range`", 1, "here.py")

    monkeypatch.setattr("tinsmith.compiling._stage.lower", refused)
    op = conv(lang64)
    x, k = torch.rand(4), torch.rand(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = gradcheck(op, x, k)
    assert result.ok, result
    assert "by the engine's own reverse mode: right" in str(result)
    assert "without the oracle: `range`, at here.py:1, is not known to it" in result.notes


def test_single_precision_without_the_interpreter(lang, monkeypatch):
    def refused(*_args, **_named):
        raise NotCovered("`range`", 1, "here.py")

    monkeypatch.setattr("tinsmith.compiling._stage.lower", refused)
    result = gradcheck(conv(lang, adjoint="engine"), torch.rand(4), torch.rand(2))
    assert result.ok, result
    assert "central differences of the op, step 0.005, each element" in result.notes


@pytest.mark.costly
def test_jumps_do_not_make_a_gradient_wrong_in_single_precision(lang):
    """Each of these Gaussians ends at a pixel or at the next one: with long steps the picture jumps."""
    op = ts.op("pos[n, 2], scale[n, 2], angle[n], color[n, 3], opacity[n] -> image[h, w, 3]")(splat(lang, serial=True))
    n = 600
    inputs = torch.rand(n, 2) * 90, torch.rand(n, 2) * 2 + 0.7, torch.rand(n) * 3, torch.randn(n, 3), torch.rand(n)
    result = gradcheck(op, *inputs, h=90, w=90)
    assert result.ok, result
    assert any("rough" in note for note in result.notes)


def test_half_precision(lang):
    assert gradcheck(conv(lang), torch.rand(6).half(), torch.rand(3).half()).ok


def test_a_splatting_kernel_is_right(lang):
    op = ts.op("pos[n, 2], scale[n, 2], angle[n], color[n, 3], opacity[n] -> image[h, w, 3]")(splat(lang, serial=True))
    inputs = torch.rand(3, 2) * 8, torch.rand(3, 2) + 0.7, torch.rand(3) * 3, torch.randn(3, 3), torch.rand(3) * 0.9
    result = gradcheck(op, *inputs, h=9, w=8)
    assert result.ok, result
    assert len(result.inputs) == 5


@pytest.mark.parametrize("size", [0, 1])
def test_small_inputs(lang, size):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    assert gradcheck(square, torch.rand(size)).ok


# Points without a derivative --------------------------------------------------------------------


def bent(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def bent(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.abs(x[i])  # here

    return bent


def test_a_kink_is_reported_but_is_no_failure(lang):
    result = gradcheck(bent(lang), torch.tensor([0.0, 1.0, -2.0]), cotangents=torch.ones(3).double())
    assert result.ok
    (kink,) = result.findings
    assert (kink.rule, kink.severity) == ("TS702", "info")
    assert "there is no derivative by `x[0]`: the slopes on its sides are -1 and 1" in kink.message
    assert "the op says 0, the oracle 0" in kink.message
    assert read_pointed_text(kink).startswith("x[i]")
    assert gradcheck(bent(lang), torch.tensor([1e-5, 1.0, -2.0])).findings == []


def test_beside_a_kink_a_shorter_step_is_taken(lang):
    result = gradcheck(bent(lang), torch.tensor([3e-7, -4e-7]))
    assert result.findings == []
    assert result.errors["x"].max() == 0


def test_a_differing_choice_at_a_kink_is_a_warning(lang):
    @ts.op("x[n] -> y[n]", adjoint="engine")
    @lang.kernel
    def greater(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.max(x[i], -3.0 * x[i])  # here

    result = gradcheck(greater, torch.tensor([0.0, 1.0]), cotangents=torch.ones(2).double())
    assert result.ok
    (kink,) = result.findings
    assert (kink.rule, kink.severity) == ("TS702", "warning")
    assert "the slopes on its sides are -3 and 1; the op says -3, the oracle -1" in kink.message


def test_a_slope_without_bound(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def guarded(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if x[i] > 0.0:
                y[i] = lang.sqrt(x[i])

    result = gradcheck(guarded, torch.tensor([0.0, 1.0]))
    assert result.ok
    assert "the slope grows without bound" in result.findings[0].message


def test_no_value_on_one_side(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def roots(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sqrt(x[i])

    result = gradcheck(roots, torch.tensor([0.0, 1.0]))
    assert result.ok
    assert "the function has no finite value on one side; the op says " in result.findings[0].message


# Refusals ---------------------------------------------------------------------------------------


def test_invalid_calls_are_refused(lang):
    with pytest.raises(ts.ArgumentError, match="ts.gradcheck takes an op"):
        gradcheck(conv(lang).kernel, torch.rand(3))
    with pytest.raises(ts.ArgumentError, match="is missing `k`"):
        gradcheck(conv(lang), torch.rand(3))
    with pytest.raises(ts.ArgumentError, match="cannot run inside a transform"):
        vmap(lambda x: (gradcheck(conv(lang), x, x), x)[1])(torch.rand(2, 3))
    with pytest.raises(ts.ArgumentError, match="`adjoint` cannot be 'guess'"):
        gradcheck(conv(lang), torch.rand(3), torch.rand(2), adjoint="guess")
