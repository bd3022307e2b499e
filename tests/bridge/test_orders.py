"""The order of a call's arguments, beside that of the spec's inputs and of results, which is always the spec's."""

import inspect
import warnings

import pytest
import torch

import cases
import tinsmith as ts

SPEC = "p[n], v[n] -> p_new[n], v_new[n]"


def moved(lang):
    @lang.kernel
    def step(
        v: lang.types.ndarray(),
        dt: lang.f64,
        p: lang.types.ndarray(),
        v_new: lang.types.ndarray(),
        p_new: lang.types.ndarray(),
    ):
        for i in v:
            v_new[i] = v[i] - dt * p[i]
            p_new[i] = p[i] + dt * v[i]

    return step


def test_results_in_another_order_than_arguments_warn(lang):
    with pytest.warns(
        UserWarning, match="the arguments of op `step` and its results are in different orders"
    ) as warned:
        op, line = ts.op("v[n], p[n] -> p_new[n], v_new[n]")(moved(lang)), inspect.currentframe().f_lineno
    assert (warned[0].filename, warned[0].lineno) == (__file__, line)
    assert op.arguments == ("v", "dt", "p")
    words = str(warned[0].message)
    assert "v, p: the kernel's order" in words
    assert "p_new, v_new: the spec's order" in words
    assert "result.p_new" in words


def test_inputs_in_another_order_than_arguments_warn(lang):
    @lang.kernel
    def weigh(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] - w[i]

    with pytest.warns(UserWarning, match="the spec of op `weigh` lists its inputs in another order") as warned:
        op, line = ts.op("w[n], x[n] -> y[n]")(weigh), inspect.currentframe().f_lineno
    assert [(one.filename, one.lineno) for one in warned] == [(__file__, line)]
    assert op.arguments == ("x", "w")
    words = str(warned[0].message)
    assert "w, x" in words
    assert "x, w: the kernel's order" in words
    assert 'order="spec"' in words
    assert 'order="kernel"' in words


def typed(lang):
    @lang.kernel
    def step(
        v: lang.types.ndarray(dtype=lang.f32),
        dt: lang.f64,
        p: lang.types.ndarray(dtype=lang.i32),
        v_new: lang.types.ndarray(),
        p_new: lang.types.ndarray(),
    ):
        for i in v:
            v_new[i] = v[i]
            p_new[i] = lang.cast(p[i], lang.f32)

    return step


@pytest.mark.parametrize(
    ("make", "spec", "order", "arguments"),
    [
        (moved, SPEC, "spec", ("p", "v", "dt")),
        (moved, SPEC, "kernel", ("v", "dt", "p")),
        (moved, "v[n], p[n] -> v_new[n], p_new[n]", None, ("v", "dt", "p")),
        (moved, "p[n], v[m] -> p_new[n], v_new[m]", None, ("v", "dt", "p")),  # two sizes: the wrong one is refused
        (typed, "p[n], v[n] -> v_new[n], p_new[n]", None, ("v", "dt", "p")),  # two dtypes: likewise
    ],
)
def test_no_warning(lang, make, spec, order, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op = ts.op(spec, order=order)(make(lang))
    assert op.arguments == arguments


def test_the_order_of_the_spec(lang64):
    op = ts.op(SPEC, order="spec")(moved(lang64))
    p, v, c = torch.rand(3, 4, dtype=torch.float64)
    p.requires_grad_()
    v.requires_grad_()
    result = op(p, v, 0.5)
    cases.assert_close(result.p_new, p + 0.5 * v)
    cases.assert_close(torch.autograd.grad(result.v_new, (p, v), c), (-0.5 * c, c))
    cases.assert_close(
        torch.func.grad(lambda p, v: op(p, v, 0.5).p_new.sum(), argnums=1)(p, v), torch.full_like(v, 0.5)
    )


def test_an_unknown_order_is_refused(lang):
    with pytest.raises(ts.ArgumentError, match="`order` cannot be 'names'") as refusal:
        ts.op(SPEC, order="names")(moved(lang))  # pyright: ignore[reportArgumentType]  # on purpose
    assert "'kernel', 'spec'" in str(refusal.value)
