"""Layers and rollouts of kernels that are given an engine's ndarrays: these are memory that lasts, as fields are."""

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.each_engine
D = torch.float64


def make(lang):
    @lang.kernel
    def squares(x: lang.types.ndarray(), y: lang.types.ndarray(), gain: float):
        for i in range(x.shape[0]):
            y[i] += x[i].norm_sqr() * gain

    return squares, lang.Vector.ndarray(3, lang.f64, 4), lang.ndarray(lang.f64, 4)


def test_rollout(lang):
    squares, x, y = make(lang)
    run = ts.rollout(lambda: (squares(x, y, 2.0), squares(x, y, 1.0)), {"x": x}, {"y": y})
    given = torch.rand(4, 3, dtype=D, requires_grad=True)
    result = run(given)
    torch.testing.assert_close(result, 3 * (given**2).sum(1))
    torch.testing.assert_close(torch.autograd.grad(result.sum(), given)[0], 6 * given)


def test_layer(lang):
    squares, x, y = make(lang)
    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(squares, x, y, 2.0).finish()
    for _ in range(2):
        given = torch.rand(4, 3, dtype=D, requires_grad=True)
        result = layer(given)
        torch.testing.assert_close(result, 2 * (given**2).sum(1))
        torch.testing.assert_close(torch.autograd.grad(result.sum(), given)[0], 4 * given)


def test_attribute(lang):
    @lang.data_oriented
    class Scaled:
        def __init__(self):
            self.w = lang.ndarray(lang.f64, 4)

        @lang.kernel
        def run(self, x: lang.template(), y: lang.template()):
            for i in range(4):
                y[i] = x[i] * self.w[i]

    x, y, scaled = lang.field(lang.f64, 4), lang.field(lang.f64, 4), Scaled()
    scaled.w.fill(3.0)
    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(scaled.run, x, y).finish()
    given = torch.rand(4, dtype=D, requires_grad=True)
    torch.testing.assert_close(layer(given), 3 * given)
    scaled.w.fill(5.0)
    torch.testing.assert_close(torch.autograd.grad(layer(given).sum(), given)[0], torch.full((4,), 5.0, dtype=D))


def test_gradients_have_memory_of_their_own(lang):
    x, gain, y = (lang.ndarray(lang.f64, 3, needs_grad=True) for _ in range(3))

    @lang.kernel
    def scale(x: lang.types.ndarray(), gain: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(3):
            y[i] = gain[i] ** 2 * x[i]

    layer = ts.EmptyTin().register_input_field(x).register_internal_field(gain).register_output_field(y)
    layer.register_kernel(scale, x, gain, y).finish()
    gain.fill(3.0)
    given = torch.rand(3, dtype=D, requires_grad=True)
    layer(given).sum().backward()
    torch.testing.assert_close(torch.from_numpy(x.to_numpy()), given.detach())
    torch.testing.assert_close(torch.from_numpy(gain.to_numpy()), torch.full((3,), 3.0, dtype=D))
    torch.testing.assert_close(torch.from_numpy(x.grad.to_numpy()), torch.full((3,), 9.0, dtype=D))
    torch.testing.assert_close(torch.from_numpy(gain.grad.to_numpy()), 6 * given.detach())
