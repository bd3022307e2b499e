"""Pitfall 09: an outermost loop that reads what it wrote, on fields (taichi #8802): right, or refused."""

import pytest
import torch

import tinsmith as ts


def cumulative(lang, **options):
    x, y = lang.field(lang.f64, shape=4, needs_grad=True), lang.field(lang.f64, shape=5, needs_grad=True)

    @lang.kernel
    def cumulative():
        lang.loop_config(serialize=True)
        for i in range(4):
            y[i + 1] = y[i] + x[i]

    layer = ts.EmptyTin(**options).register_input_field(x, "x").register_output_field(y, "y")
    return layer.register_kernel(cumulative).finish()


@pytest.mark.parametrize("on_tensors", [False, True])
def test_generated(lang64, draw, on_tensors):
    x, seed = draw(4).requires_grad_(), draw(5)
    y = cumulative(lang64, on_tensors=on_tensors)(x)
    torch.testing.assert_close(y[1:], x.cumsum(0))
    (gradient,) = torch.autograd.grad(y, x, seed)
    torch.testing.assert_close(gradient, seed[1:].flip(0).cumsum(0).flip(0))


def test_the_engines_own(lang64, draw):
    """Taichi's would be wrong in silence."""
    layer, x = cumulative(lang64, adjoint="engine"), draw(4)
    torch.testing.assert_close(layer(x)[1:], x.cumsum(0))
    with pytest.raises(ts.GradientError, match=r"(?s)`y`.*test_09_cross_iter_field\.py:16"):
        layer(x.requires_grad_()).sum().backward()
