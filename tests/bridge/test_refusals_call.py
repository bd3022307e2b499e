"""What a bad call gets: an error before any launch, with the op, the argument, both sides of the misfit, a remedy."""

import re

import numpy as np
import pytest
import torch

import cases
import tinsmith as ts

F64 = torch.float64


def rand(*shape, dtype=F64):
    return torch.rand(shape, dtype=F64).to(dtype)


def quantized():
    """Make a quantized tensor when the test runs, since torch warns that it is deprecated."""
    return torch.quantize_per_tensor(torch.rand(5), 0.1, 0, torch.qint8)


# op, arguments, keywords, error, fragments of its words
MISFITS = {
    "rank": ("convolution", (rand(2, 5), rand(3)), {}, ts.ShapeError, ["`x`", "[n]", "(2, 5)"]),
    "rank 0": ("square", (rand(),), {}, ts.ShapeError, ["`x`", "[n]", "()"]),
    "size against another": ("formula", (rand(5), rand(4)), {}, ts.ShapeError, ["`k`", "`x`", "(4,)", "5"]),
    "size against the spec": ("bilinear", (rand(4, 4), rand(5, 3)), {}, ts.ShapeError, ["`place`", "2", "(5, 3)"]),
    "element width": ("lengths", (rand(5, 4),), {}, ts.ShapeError, ["`p`", "3", "(5, 4)"]),
    "negative output": ("convolution", (rand(2), rand(4)), {}, ts.ShapeError, ["`y`", "n - m + 1", "-1"]),
    "batch": ("batched", (rand(2, 3, 4), rand(2, 5), rand(4)), {}, ts.ShapeError, ["`gain`", "b", "(2, 5)"]),
    "batch rank": ("batched", (rand(2, 3, 4), rand(2), rand(4)), {}, ts.ShapeError, ["`gain`", "b", "(2,)"]),
    "ellipsis": ("any_rank", (rand(2, 3), rand(3)), {}, ts.ShapeError, ["`k`", "...", "(3,)"]),
    "integer dtype": ("gather", (rand(5), torch.tensor([1])), {}, ts.DtypeError, ["`index`", "int32", "int64", ".to("]),
    "float for integer": ("gather", (rand(5), rand(2)), {}, ts.DtypeError, ["`index`", "int32", "float64"]),
    "element dtype": ("lengths", (rand(5, 3, dtype=torch.float32),), {}, ts.DtypeError, ["`p`", "float64", "float32"]),
    "bfloat16": ("lengths", (rand(5, 3, dtype=torch.bfloat16),), {}, ts.DtypeError, ["`p`", "float64", "bfloat16"]),
    "complex": ("square", (rand(5) + 1j,), {}, ts.DtypeError, ["`x`", "complex", "view_as_real"]),
    "sparse": ("square", (rand(5).to_sparse(),), {}, ts.TinsmithError, ["`x`", "sparse", "to_dense"]),
    "quantized": ("square", (quantized,), {}, ts.TinsmithError, ["`x`", "quanti", "dequantize"]),
    "meta rank": ("square", (torch.empty(5, 5, device="meta"),), {}, ts.ShapeError, ["`x`", "[n]", "(5, 5)"]),
    "mixed devices": ("formula", (rand(5), rand(5).to("meta")), {}, ts.DeviceError, ["k  meta", "x  cpu", "device"]),
    "too few": ("formula", (rand(5),), {}, ts.ArgumentError, ["`k`", "x, k"]),
    "none": ("formula", (), {}, ts.ArgumentError, ["x, k"]),
    "too many": ("square", (rand(5), rand(5)), {}, ts.ArgumentError, ["1", "2"]),
    "output passed": ("square", (rand(5),), {"y": rand(5)}, ts.ArgumentError, ["`y`"]),
    "scratch passed": ("two_loops", (rand(5),), {"h": rand(5)}, ts.ArgumentError, ["`h`"]),
    "unknown name": ("square", (), {"xx": rand(5)}, ts.ArgumentError, ["`xx`"]),
    "named twice": ("square", (rand(5),), {"x": rand(5)}, ts.ArgumentError, ["`x`"]),
    "list": ("square", ([1.0, 2.0],), {}, ts.ArgumentError, ["`x`", "list", "tensor("]),
    "array": ("square", (np.ones(3),), {}, ts.ArgumentError, ["`x`", "ndarray", "torch."]),
    "None": ("square", (None,), {}, ts.ArgumentError, ["`x`", "None"]),
    "number": ("square", (3.0,), {}, ts.ArgumentError, ["`x`", "float"]),
    "tensor for a scalar": ("scalars", (rand(5), rand(), 3), {}, ts.ArgumentError, ["`scale`", "scale[]", ".item()"]),
    "text for a scalar": ("scalars", (rand(5), "2.0", 3), {}, ts.ArgumentError, ["`scale`", "str"]),
    "float for an int scalar": ("scalars", (rand(5), 2.0, 1.5), {}, ts.ArgumentError, ["`shift`", "1.5"]),
    "int scalar too large": ("scalars", (rand(5), 2.0, 2**31), {}, ts.ArgumentError, ["`shift`", "i32", "2147483648"]),
    "number for a differentiable scalar": ("learnable_scalar", (2.0, rand(3)), {}, ts.ArgumentError, ["`m`", "float"]),
    "vector for a differentiable scalar": ("learnable_scalar", (rand(1), rand(3)), {}, ts.ShapeError, ["`m`", "(1,)"]),
    "missing dim": ("splat", (rand(3, 2), rand(3)), {"h": 4}, ts.ArgumentError, ["`w`", "w="]),
    "unknown dim": ("splat", (rand(3, 2), rand(3)), {"h": 4, "w": 5, "d": 1}, ts.ArgumentError, ["`d`"]),
    "negative dim": ("splat", (rand(3, 2), rand(3)), {"h": 4, "w": -5}, ts.TinsmithError, ["w", "-5"]),
    "fractional dim": ("splat", (rand(3, 2), rand(3)), {"h": 4, "w": 5.0}, ts.ArgumentError, ["`w`", "5.0"]),
    "dim that inputs fix": ("convolution", (rand(5), rand(2)), {"n": 5}, ts.ArgumentError, ["`n`"]),
    "tensor for a template": ("polynomial", (rand(5), rand(4), torch.tensor(3)), {}, ts.ArgumentError, ["`degree`"]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse.*beta state:UserWarning")
@pytest.mark.parametrize("called_before", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize("misfit", MISFITS)
def test_arguments_that_do_not_fit_are_refused(lang64, misfit, called_before):
    name, inputs, keywords, error, fragments = MISFITS[misfit]
    case = cases.select_cases(name)[0]
    op = case.raw_op(lang64, F64) if called_before else case.build(lang64, lang64.f64)
    if called_before:  # what a call has planned and cached must not let a misfit through
        op(*case.inputs(F64), **case.keywords)
    with pytest.raises(error) as caught:
        op(*[v() if callable(v) and not torch.is_tensor(v) else v for v in inputs], **keywords)
    words = str(caught.value)
    for fragment in [f"`{name}`", *fragments]:
        assert fragment in words, words
    assert isinstance(caught.value, ts.TinsmithError)


# The whole text of one, so that the layout is held too.
def test_the_layout_of_a_refusal(lang64):
    op = cases.select_cases("formula")[0].raw_op(lang64, F64)
    with pytest.raises(ts.ShapeError) as caught:
        op(rand(1024), rand(1023))
    first, *table, remedy = str(caught.value).splitlines()
    assert "`k`" in first and "op `formula`" in first
    assert any("(1024,)" in row for row in table)
    assert any("(1023,)" in row and "n was 1024" in row for row in table)
    assert all(row.startswith("  ") for row in table) and remedy and not remedy.startswith(" ")


def test_errors_are_also_builtin_exceptions(lang64):
    """`except ValueError` keeps working for those who never heard of us."""
    op = cases.select_cases("formula")[0].raw_op(lang64, F64)
    with pytest.raises(ValueError, match="formula"):
        op(rand(5), rand(4))
    with pytest.raises(TypeError, match="formula"):
        op(rand(5))
    with pytest.raises(TypeError, match="formula"):
        op(rand(5), rand(5).to(torch.complex64))


def test_a_refused_call_runs_and_changes_nothing(lang64):
    op = cases.select_cases("formula")[0].raw_op(lang64, F64)
    x, k = rand(5).requires_grad_(), rand(4)
    before = x.detach().clone(), k.clone()
    with pytest.raises(ts.ShapeError):
        op(x, k)
    assert torch.equal(x, before[0]) and torch.equal(k, before[1]) and x._version == 0 and x.grad is None


def test_a_refused_call_leaves_the_op_usable(lang64):
    case = cases.select_cases("formula")[0]
    op = case.build(lang64, lang64.f64)
    for bad in ((rand(5), rand(4)), (rand(5),), (rand(5).to(torch.complex64), rand(5))):
        with pytest.raises(ts.TinsmithError):
            op(*bad)
    cases.assert_same_values_and_gradients(op, case.expected, case.inputs(F64))


def test_a_dtype_annotation_is_kept(lang64):
    """ndarray(dtype=f64) refuses float32 (pitfall 73), by name and with the cast to write."""

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def exact(x: lang64.types.ndarray(dtype=lang64.f64, ndim=1), y: lang64.types.ndarray(dtype=lang64.f64, ndim=1)):
        for i in x:
            y[i] = 2.0 * x[i]

    with pytest.raises(ts.DtypeError, match=r"(?s)`x`.*`exact`.*float64.*float32.*\.(double|to)\(.*annotat") as caught:
        exact(torch.rand(3))
    assert "types.ndarray(dtype=f64, ndim=1)" in str(caught.value)  # what says so

    @ts.op("x[n]: f64 -> y[n]")
    @lang64.kernel
    def by_spec(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    with pytest.raises(ts.DtypeError, match=r"(?s)float64.*x\[n\]: f64.*float32.*spec"):
        by_spec(torch.rand(3))


def test_a_dtype_that_a_listed_number_is_not_annotated_with(lang):
    @ts.op("x[n], s[], v[2] -> y[n]")
    @lang.kernel
    def scaled(x: lang.types.ndarray(), s: lang.f32, v: lang.types.vector(2, lang.f32), y: lang.types.ndarray()):
        for i in x:
            y[i] = s * x[i] + v[0]

    x, s, v = torch.rand(3), torch.rand(()), torch.rand(2)
    with pytest.raises(ts.DtypeError, match="tensor `s` of op `scaled` has the wrong dtype") as caught:
        scaled(x, s.double(), v)
    words = str(caught.value)
    assert "`s.to(torch.float32)`" in words
    engine = {"taichi": "ti", "quadrants": "qd"}[lang.__name__]
    assert f"`s: {engine}.f64`" in words
    assert f"`s: {engine}.types.ndarray()`" in words
    assert "`s[None]`" in words
    assert "leave the dtype out" not in words
    with pytest.raises(
        ts.DtypeError, match=r"`v\.to\(torch.float32\)`; or annotate it as `v: (ti|qd).types.ndarray\(\)`"
    ):
        scaled(x, s, v.double())


@pytest.mark.compiled_engine
def test_an_engine_that_was_not_started(lang64, engine_keeper):
    case = cases.select_cases("square")[0]
    op = case.build(lang64, lang64.f64)
    lang64.reset()  # the next test's fixture starts it again
    with pytest.raises(ts.EngineError, match=r"(?s)`square`.*init"):
        op(rand(3))


@pytest.mark.gpu
def test_an_engine_started_for_another_device(lang64, engine_keeper):
    case = cases.select_cases("square")[0]
    with pytest.raises(ts.TinsmithError, match=r"`square` got tensors on cpu, but its engine .* runs on cuda"):
        case.build(lang64, lang64.f64)(rand(3))


@pytest.mark.parametrize(
    ("dtype", "advised"), [("", "torch.as_tensor(s)"), (": f64", "torch.as_tensor(s, dtype=torch.float64)")]
)
def test_a_number_in_place_of_an_array_without_dims(lang, dtype, advised):
    """What the message says to pass is taken: of a number alone torch would make a float32."""

    @ts.op(f"x[n], s[]{dtype} -> y[n]")
    @lang.kernel
    def scaled(x: lang.types.ndarray(), s: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = s[None] * x[i]

    with pytest.raises(ts.ArgumentError, match=re.escape(f"Pass a tensor: `{advised}`.")):
        scaled(torch.ones(2), 0.7)
    torch.testing.assert_close(
        scaled(torch.ones(2), eval(advised, {"torch": torch, "s": 0.7})).float(), torch.full((2,), 0.7)
    )


def test_more_dims_than_an_index_has(lang):
    @ts.op("x[...] -> y[...]")
    @lang.kernel
    def negate(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for place in lang.grouped(x):
            y[place] = -x[place]

    x = torch.rand([1] * 12)
    assert torch.equal(negate(x), -x)
    words = "array `x` of op `negate` has too many dims\n  dims     13\n  at most  12"
    with pytest.raises(ts.ShapeError, match=words):
        negate(x[None])


def test_vectors_without_elements(lang):
    @ts.op("p[n, d] -> y[n]")
    @lang.kernel
    def lengths(p: lang.types.ndarray(dtype=lang.types.vector()), y: lang.types.ndarray()):
        for i in p:
            y[i] = p[i].norm_sqr()

    assert lengths(torch.ones(4, 2)).tolist() == [2, 2, 2, 2]
    words = r"array `p` of op `lengths` has vectors or matrices without elements\n  p  \(4, 0\) .*sizes of 1 or more"
    with pytest.raises(ts.ShapeError, match=words):
        lengths(torch.ones(4, 0))
