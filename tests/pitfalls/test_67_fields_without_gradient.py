"""Pitfalls 67, 68, 69: fields whose gradient is placed in part, by hand, or too early (taichi #2423, #4015)."""

import pytest
import torch

import tinsmith as ts


def doubled(lang, x, y):
    @lang.kernel
    def doubled():
        for i in x:
            y[None] += x[i] * 2.0

    return ts.EmptyTin().register_input_field(x, "x").register_output_field(y, "y").register_kernel(doubled)


def test_a_gradient_that_was_asked_for_and_not_placed_is_refused(lang64):
    """67: with what to write."""
    x, y = (lang64.field(lang64.f64, needs_grad=True) for _ in range(2))
    blocks = lang64.FieldsBuilder()
    blocks.dense(lang64.i, 3).place(x)
    blocks.place(y)
    blocks.finalize()
    with pytest.raises(
        ts.GradientError, match=r"(?s)`x`.*needs_grad=True.*its gradient was not.*\.place\(x, x\.grad\)"
    ):
        doubled(lang64, x, y)
    lang64.root.dense(lang64.i, 3).place(x.grad)  # no kernel of the program would run without it
    lang64.root.place(y.grad)


def test_a_gradient_that_was_placed_by_hand_is_right(lang64, draw):
    """68"""
    x, y = (lang64.field(lang64.f64) for _ in range(2))
    blocks = lang64.FieldsBuilder()
    blocks.dense(lang64.i, 3).place(x, x.grad)
    blocks.place(y, y.grad)
    blocks.finalize()
    given = draw(3).requires_grad_()
    doubled(lang64, x, y).finish()(given).backward()
    torch.testing.assert_close(given.grad, torch.full((3,), 2.0, dtype=torch.float64))


def late(lang, **options):
    """Make a layer with a field that is made after `lazy_grad`, between two kernels."""
    x, y = (lang.field(lang.f64, shape=()) for _ in range(2))
    lang.root.lazy_grad()
    h = lang.field(lang.f64, shape=())

    @lang.kernel
    def first():
        h[None] = x[None] * 3.0

    @lang.kernel
    def second():
        y[None] = h[None] * x[None]

    layer = ts.EmptyTin(**options).register_input_field(x, "x").register_output_field(y, "y")
    return layer.register_kernel(first).register_kernel(second), h


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_field_made_after_lazy_grad_hands_its_gradient_on(lang64, draw, is_registered):
    """69: the generated gradient needs none of the engine's."""
    layer, h = late(lang64)
    layer = layer.register_internal_field(h, name="h") if is_registered else layer
    given = draw(1)[0].requires_grad_()
    layer.finish()(given).backward()
    torch.testing.assert_close(given.grad, 6 * given.detach())


def test_a_field_made_after_lazy_grad_is_no_silent_zero(lang64, draw):
    """69: the engine's own is refused by its name."""
    layer, h = late(lang64, adjoint="engine")
    layer.register_internal_field(h, name="h").finish()
    with pytest.raises(ts.GradientError, match=r"(?s)go through the field `h`, which has no gradient.*needs_grad=True"):
        layer(draw(1)[0].requires_grad_()).backward()


def test_a_field_that_nobody_registered_is_no_silent_zero(lang64, draw):
    layer, _ = late(lang64, adjoint="engine")
    layer.finish()
    with pytest.raises(ts.GradientError, match=r"(?s)`h`"):
        layer(draw(1)[0].requires_grad_()).backward()


def test_a_field_made_after_lazy_grad_is_right_on_tensors(lang64, draw):
    layer, _ = late(lang64, on_tensors=True)
    layer.finish()
    x = draw(1)[0].requires_grad_()
    layer(x).backward()
    torch.testing.assert_close(x.grad, 6.0 * x.detach())
