"""A weight that torch's own tools change: parametrized, pruned, assigned."""

import torch
from torch.nn.utils import parametrize, prune

import cases
import tinsmith as ts

N = 5


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def product(lang):
    """Make a layer y = w x, and the field of w."""
    x, y, w = (lang.field(lang.f64, shape=N, needs_grad=True) for _ in range(3))

    @lang.kernel
    def kernel():
        for i in x:
            y[i] = w[i] * x[i]

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y)
    return layer.register_weight_field(w, name="w", value=rand(N)).register_kernel(kernel).finish(), w


class Square(torch.nn.Module):
    def forward(self, root):
        return root * root


def stepped(layer):
    """Run one step of training; return what the call gave, and its input."""
    x = rand(N)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    y = layer(x)
    optimizer.zero_grad()
    y.sum().backward()
    optimizer.step()
    return y, x


def test_a_parametrized_weight_trains(lang64):
    layer, field = product(lang64)
    parametrize.register_parametrization(layer, "w", Square())
    root = layer.parametrizations.w.original
    before = root.detach().clone()
    y, x = stepped(layer)
    cases.assert_close(y, before**2 * x)
    cases.assert_close(root.grad, 2 * before * x)
    cases.assert_close(field.to_torch(), (before - 0.2 * before * x) ** 2)
    layer.load_state_dict(layer.state_dict())


def test_a_pruned_weight_trains(lang64):
    layer, _ = product(lang64)
    prune.l1_unstructured(layer, "w", amount=2)
    kept = layer.w.detach().clone()
    y, x = stepped(layer)
    assert int((kept == 0).sum()) == 2
    cases.assert_close(y, kept * x)
    assert int((layer(torch.ones(N, dtype=torch.float64)) == 0).sum()) == 2


def test_an_assigned_weight_is_written_into_its_field(lang64):
    layer, field = product(lang64)
    values = rand(N)
    layer.load_state_dict({"w": values.clone()}, assign=True)
    cases.assert_close(field.to_torch(), values)
    _, x = stepped(layer)
    cases.assert_close(field.to_torch(), values - 0.1 * x)
