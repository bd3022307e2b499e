"""Operators in graphs that a compiler has differentiated: one look-up, and none of what autograd needs."""

import gc
import math
import weakref

import pytest
import torch

import tinsmith as ts
from tinsmith.torch_side import _operator


def make_scaled(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scaled(x: lang.types.ndarray(), factor: lang.f32, y: lang.types.ndarray()):
        for i in x:
            y[i] = factor * x[i] * x[i]

    return scaled


def refuse(*_arguments, **_named):
    raise AssertionError("a call of a known kind was handed to autograd, or checked again")


def test_a_repeated_call_is_neither_differentiated_nor_checked_again(lang, monkeypatch):
    scaled = make_scaled(lang)
    x = torch.rand(5, requires_grad=True)
    compiled = torch.compile(lambda x: scaled(x, 3.0).sum(), fullgraph=True, backend="aot_eager")
    (first,) = torch.autograd.grad(compiled(x), x)
    for name in ("apply_at_one_level", "make_checked_call"):
        monkeypatch.setattr(_operator, name, refuse)
    (again,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(first, 6.0 * x.detach())
    torch.testing.assert_close(again, first)


def test_calls_that_differ_have_launches_of_their_own(lang):
    """Sizes, memory order and numbers; 2 and 2.0 are equal, and so are hashes of them."""
    scaled = make_scaled(lang)
    operator = scaled.operator
    x = torch.rand(6)
    for given in (x, x[:4], x[::2], x.flip(0)):
        for factor in (2.0, 3.0, 2.0):
            torch.testing.assert_close(operator(given, factor), factor * given * given)
    y = operator(x.double(), 2.0)
    assert y.dtype == torch.float64
    torch.testing.assert_close(y, 2.0 * x.double() ** 2)


def test_calls_in_graphs_keep_no_op_alive(lang):
    scaled = make_scaled(lang)
    scaled.operator(torch.rand(3), 2.0)
    core = weakref.ref(scaled._core)
    gc.collect()
    gc.disable()
    try:
        del scaled
        assert core() is None
    finally:
        gc.enable()


def make_power(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def power(x: lang.types.ndarray(), factor: lang.f32, count: lang.template(), y: lang.types.ndarray()):
        for i in x:
            y[i] = factor
            for _ in range(count):
                y[i] *= x[i]

    return power


def test_zeros_differ_by_their_signs(lang):
    """0.0 and -0.0 are equal, and so are hashes of them."""
    scaled = make_scaled(lang)
    x = torch.ones(3)
    signs = [math.copysign(1.0, scaled.operator(x, factor)[0]) for factor in (0.0, -0.0, 0.0)]
    assert signs == [1.0, -1.0, 1.0]


def test_numbers_that_only_kernels_read_share_a_launch(lang):
    """So a step size that changes from call to call is not checked again, and a NaN, which equals nothing, neither."""
    scaled = make_scaled(lang)
    x = torch.ones(3)
    for factor in (1.0, 2.0, math.nan, math.nan):
        torch.testing.assert_close(scaled.operator(x, factor), torch.full((3,), factor), equal_nan=True)
    assert len(scaled._core.launches) == 1


def test_other_template_arguments_are_not_the_same_call(lang):
    power = make_power(lang)
    x = torch.full((3,), 2.0)
    for count in (1, 3, 1):
        torch.testing.assert_close(power.operator(x, 1.0, count), x**count)


def test_repeated_calls_have_a_gradient_if_needed(lang):
    scaled = make_scaled(lang)
    x = torch.rand(3)
    scaled.operator(x, 2.0)
    x.requires_grad_()
    assert scaled.operator(x, 2.0).requires_grad
    (slope,) = torch.autograd.grad(scaled.operator(x, 2.0).sum(), x, create_graph=True)
    torch.testing.assert_close(slope, 4.0 * x)
    (again,) = torch.autograd.grad(slope.sum(), x)
    torch.testing.assert_close(again, torch.full((3,), 4.0))
    with torch.no_grad():
        assert not scaled.operator(x, 2.0).requires_grad


def test_transforms_see_repeated_calls(lang):
    scaled = make_scaled(lang)
    x = torch.rand(2, 3)
    scaled.operator(x[0], 2.0)
    torch.testing.assert_close(torch.func.vmap(lambda x: scaled.operator(x, 2.0))(x), 2.0 * x * x)
    torch.testing.assert_close(torch.func.grad(lambda x: scaled.operator(x, 2.0).sum())(x[0]), 4.0 * x[0])
    _, moved = torch.func.jvp(lambda x: scaled.operator(x, 2.0), (x[0],), (torch.ones(3),))
    torch.testing.assert_close(moved, 4.0 * x[0])


def test_modes_and_tensor_subclasses_see_repeated_calls(lang):
    class Counted(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, arguments=(), named=None):
            seen.append(function)
            whole = [one.elem if isinstance(one, cls) else one for one in arguments]
            return function(*whole, **(named or {}))

    scaled, seen = make_scaled(lang), []
    x = torch.rand(3)
    for _ in range(2):
        scaled.operator(x, 2.0)
        counted = Counted._make_subclass(Counted, x)
        counted.elem = x
        torch.testing.assert_close(scaled.operator(counted, 2.0), 2.0 * x * x)
        assert seen.pop() == scaled.operator
        assert scaled.operator(x.to("meta"), 2.0).is_meta
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            scaled.operator(x, 2.0)
        assert counter.get_total_flops() == 6


def test_a_negative_bit_counts_in_both_passes(lang):
    """Memory behind it has the other signs; kernels get addresses."""
    scaled = make_scaled(lang)
    x = torch._neg_view(torch.rand(3))
    for one in (x.resolve_neg(), x, x.resolve_neg(), x):
        _, pull = torch.func.vjp(lambda x: scaled(x, 1.0), one)
        torch.testing.assert_close(pull(torch.ones(3))[0], 2.0 * x)
        torch.testing.assert_close(pull(one)[0], 2.0 * x * x)


def test_memory_order_counts_in_a_backward_pass(lang):
    scaled = make_scaled(lang)
    x, weights = torch.rand(6), torch.rand(6)
    for one, weight in ((x[:3], weights[:3]), (x[::2], weights[:3]), (x[:3], weights[::2]), (x[:3], weights[:3])):
        slope = torch.func.vjp(lambda x: scaled(x, 1.0), one)[1](weight)[0]
        torch.testing.assert_close(slope, 2.0 * one * weight)


def test_a_gradient_that_is_the_cotangent_is_new_memory(lang):
    """Compilers write into an operator's results."""

    @ts.op("x[n], z[n] -> y[n]")
    @lang.kernel
    def add(x: lang.types.ndarray(), z: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] + z[i]

    cotangent = torch.ones(3)
    pull = torch.func.vjp(add, torch.rand(3), torch.rand(3))[1]
    for _ in range(2):
        addresses = {cotangent.data_ptr(), *(slope.data_ptr() for slope in pull(cotangent))}
        assert len(addresses) == 3


@pytest.mark.parametrize("dim", ["operator", "core", "a0", "found"])
def test_a_dim_by_keyword_may_have_any_name(lang, dim):
    @ts.op(f"x[n] -> y[{dim}, n]")
    @lang.kernel
    def repeated(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in y:
            y[i, j] = x[j]

    x = torch.rand(3, requires_grad=True)
    for count in (2, 2, 5):
        y = repeated.operator(x, **{dim: count})
        torch.testing.assert_close(y, x.expand(count, 3))
        (slope,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(slope, torch.full((3,), float(count)))


def test_vectors_of_numbers(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def shifted(x: lang.types.ndarray(), by: lang.types.vector(2, lang.f32), y: lang.types.ndarray()):
        for i in x:
            y[i] = by[0] * x[i] + by[1]

    x = torch.rand(3, requires_grad=True)
    for by in ((1.0, 2.0), (3.0, -0.0), (1, 2)):
        y = shifted.operator(x, list(by))
        torch.testing.assert_close(y, by[0] * x + by[1])
        (slope,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(slope, torch.full((3,), float(by[0])))


def test_a_started_engine_has_new_launches(lang):
    scaled = make_scaled(lang)
    x = torch.rand(3, requires_grad=True)
    compiled = torch.compile(lambda x: scaled(x, 3.0).sum(), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        for _ in range(2):
            (slope,) = torch.autograd.grad(compiled(x), x)
            torch.testing.assert_close(slope, 6.0 * x.detach())
        ts.init("cpu", engine=scaled.engine)
