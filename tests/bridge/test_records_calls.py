"""Indices that atomics hand out, in calls of all kinds."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import tinsmith as ts
from tinsmith import GradientError


def make_leaf(*sizes, dtype=torch.float64):
    return torch.rand(*sizes).to(dtype).requires_grad_()


def squares(lang, kind=None):
    array = lang.types.ndarray() if kind is None else lang.types.ndarray(dtype=kind)

    @ts.op("x[n] -> y[n]", scratch="count[]: i32")
    @lang.kernel
    def squared(x: array, y: array, count: lang.types.ndarray()):
        for i in x:
            k = lang.atomic_add(count[None], 1)
            y[k] += x[i] * x[i]

    return squared


def test_an_argument_updated_in_place(lang64):
    array = lang64.types.ndarray()

    @ts.op("x[n], inout y[n] ->", scratch="count[]: i32")
    @lang64.kernel
    def update(x: array, y: array, count: array):
        for i in x:
            y[lang64.atomic_add(count[None], 1)] += x[i] * x[i]

    x, y = make_leaf(8), torch.ones(8, dtype=torch.float64)
    update(x, y)
    (gradient,) = torch.autograd.grad((3.0 * y).sum(), x)
    assert torch.allclose(gradient, 6.0 * x)


def test_half_precision(lang):
    x = make_leaf(8, dtype=torch.float16)
    y = squares(lang, lang.f32)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.dtype == torch.float16 and torch.equal(gradient, 2.0 * x)


def test_random_numbers(lang64):
    array = lang64.types.ndarray()

    @ts.op("x[n] -> y[n]", scratch="count[]: i32")
    @lang64.kernel
    def drawn(x: array, y: array, count: array):
        for i in x:
            r = lang64.random(lang64.f64)
            if r > 0.5:
                y[lang64.atomic_add(count[None], 1)] = x[i] * r

    x = make_leaf(50)
    y = drawn(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close((gradient * x).sum(), y.sum())
    drawn_ones = gradient[gradient > 0]
    assert 5 < len(drawn_ones) < 45 and bool((drawn_ones > 0.5).all())


def test_templates_decide_how_much_is_kept(lang64):
    array = lang64.types.ndarray()

    @ts.op("x[n] -> y[2 * n]", scratch="count[]: i32")
    @lang64.kernel
    def repeated(x: array, times: lang64.template(), y: array, count: array):
        for i in x:
            for _ in range(times):
                y[lang64.atomic_add(count[None], 1)] = x[i] * x[i]

    x = make_leaf(9)
    for times in (1, 2, 0, 1):
        (gradient,) = torch.autograd.grad(repeated(x, times).sum(), x)
        assert torch.allclose(gradient, 2.0 * times * x)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 4)])
def test_any_rank(lang64, shape):
    array = lang64.types.ndarray()

    @ts.op("x[...] -> y[...]", scratch="count[]: i32")
    @lang64.kernel
    def ranked(x: array, y: array, count: array):
        for place in lang64.grouped(x):
            k = lang64.atomic_add(count[None], 1)
            y[place] = x[place] * x[place] * k

    x = make_leaf(*shape)
    y = ranked(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(gradient * x, 2.0 * y)


def test_sizes_that_a_compiler_leaves_open(lang64):
    op = squares(lang64)
    compiled = torch.compile(lambda x: (op(x) ** 2).sum(), fullgraph=True, dynamic=True, backend="aot_eager")
    for size in (5, 6, 9):
        x = make_leaf(size)
        compiled(x).backward()
        assert torch.allclose(x.grad, 4.0 * x**3)


def test_a_gradient_that_is_differentiated(lang64):
    op, x = squares(lang64), make_leaf(7)
    (first,) = torch.autograd.grad((op(x) ** 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second, 12.0 * x**2)


def test_a_call_without_gradients_runs_the_kernel_itself(lang64):
    op, x = squares(lang64), make_leaf(7)
    with torch.no_grad():
        op(x)
    op(x.detach())
    assert not any("returned_0" in text for stage in op._core.signature.firsts for text in stage.texts.values())
    (recorded,) = op._core.recorded.values()
    assert not recorded.programs
    op(x)
    assert recorded.programs


def test_a_layer_on_fields(lang64):
    x, y = (lang64.field(lang64.f64, 8) for _ in range(2))
    count = lang64.field(lang64.i32, ())

    @lang64.kernel
    def packed():
        count[None] = 0
        for i in x:
            if x[i] > 0.3:
                y[lang64.atomic_add(count[None], 1)] = x[i] * x[i]

    layer = ts.EmptyTin(torch.device("cpu"))
    layer.register_kernel(packed)
    layer.register_input_field(x)
    layer.register_output_field(y)
    layer.register_internal_field(count)
    layer.finish()
    given = make_leaf(8)
    (gradient,) = torch.autograd.grad((layer(given) ** 2).sum(), given)
    assert torch.allclose(gradient, torch.where(given > 0.3, 4.0 * given**3, 0.0 * given))


def test_a_forward_pass_that_is_run_again_is_right_or_refused(lang64):
    """Right where indices are the same again, refused where they are not: cotangents belong to the first ones."""
    op = squares(lang64)

    def gradient(x, change=lambda tensor: tensor):
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, change):
            return torch.autograd.grad((op(x) ** 2).sum(), x)[0]

    def other(tensor):
        return tensor.flip(0) if tensor.dtype == torch.int32 else tensor

    x = make_leaf(9)
    assert torch.allclose(gradient(x, torch.clone), 4.0 * x**3)
    with pytest.raises(GradientError, match="was run again for its backward pass, and its atomics returned other"):
        gradient(x, other)
    y = checkpoint(lambda x: op(x).sum(), x, use_reentrant=False)
    assert torch.allclose(torch.autograd.grad(y, x)[0], 2.0 * x)
