"""Layers on CUDA: fields and tensors lie there, and gradients are those of torch."""

import pytest
import torch

import cases
import tinsmith as ts

pytestmark = pytest.mark.gpu


def rand(*shape):
    return torch.rand(shape, dtype=torch.float64, device="cuda")


def assert_agrees(layer, x):
    """Assert that a layer computes y = w sin(x) + b, with w and b from fields."""
    parameters = [one.detach().clone().requires_grad_() for one in (layer.w, layer.b)]
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, wanted = layer(ours), parameters[0] * theirs.sin() + parameters[1]
    assert y.is_cuda
    cases.assert_close(y, wanted)
    cotangent = rand(*x.shape)
    mine = torch.autograd.grad(y, (ours, layer.w, layer.b), cotangent)
    cases.assert_close(mine, torch.autograd.grad(wanted, (theirs, *parameters), cotangent))


@pytest.mark.parametrize("adjoint", ["auto", "engine"])
@pytest.mark.parametrize("on_tensors", [False, True])
def test_a_layer_of_registered_fields(lang64, on_tensors, adjoint):
    if on_tensors and adjoint == "engine":
        pytest.skip("a layer on tensors has the gradient of its op")
    x, y, w = (lang64.field(lang64.f64, shape=50, needs_grad=True) for _ in range(3))
    b = lang64.field(lang64.f64, shape=(), needs_grad=True)

    @lang64.kernel
    def run():
        for i in x:
            y[i] = w[i] * lang64.sin(x[i]) + b[None]

    layer = ts.EmptyTin(on_tensors=on_tensors, adjoint=adjoint).register_kernel(run)
    layer = layer.register_input_field(x).register_output_field(y)
    layer = layer.register_weight_field(w, name="w", value=rand(50)).register_weight_field(b, name="b", value=rand())
    layer = layer.finish().cuda()
    for _ in range(3):
        assert_agrees(layer, rand(50))


def test_a_batch_of_a_decorated_class(lang64):
    @lang64.data_oriented
    class Wave:
        def __init__(self):
            self._x, self._y, self._w = (lang64.field(lang64.f64, 5, needs_grad=True) for _ in range(3))
            self._b = lang64.field(lang64.f64, (), needs_grad=True)

        @ts.input(batched=True)
        def x(self):
            return self._x

        @ts.output
        def y(self):
            return self._y

        @ts.weight(value=torch.rand(5, dtype=torch.float64))
        def w(self):
            return self._w

        @ts.weight(value=torch.rand((), dtype=torch.float64))
        def b(self):
            return self._b

        @ts.kernel
        @lang64.kernel
        def run(self):
            for i in self._x:
                self._y[i] = self._w[i] * lang64.sin(self._x[i]) + self._b[None]

    assert_agrees(ts.Tin(Wave()).cuda(), rand(7, 5))


def test_a_moving_average_in_place(lang64):
    """A state that the kernel updates where it lies: the gradient is of the values that the forward pass had."""
    state, x, out = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def step():
        for i in x:
            state[i] = 0.9 * state[i] + 0.1 * x[i] * x[i]
            out[i] = state[i] * state[i]

    layer = ts.EmptyTin().register_input_field(state, name="state").register_input_field(x, name="x")
    layer = layer.register_output_field(out, name="out").register_kernel(step).finish()
    given = [rand(4).requires_grad_() for _ in range(2)]
    twins = [one.detach().clone().requires_grad_() for one in given]
    wanted = (0.9 * twins[0] + 0.1 * twins[1].square()).square()
    averages = layer(*given)
    cases.assert_close(averages, wanted)
    cases.assert_close(torch.autograd.grad(averages.sum(), given), torch.autograd.grad(wanted.sum(), twins))
