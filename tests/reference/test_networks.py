"""The twins of networks against torch's own layers, and against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tinsmith import reference

TORCH = {
    "None": lambda x: x,
    "ReLU": functional.relu,
    "LeakyReLU": lambda x: functional.leaky_relu(x, 0.01),
    "SiLU": functional.silu,
    "Exponential": torch.exp,
    "Sine": torch.sin,
    "Sigmoid": torch.sigmoid,
    "Squareplus": lambda x: (x + (x**2 + 0.04).sqrt()) / 2,
    "Softplus": lambda x: functional.softplus(x, beta=10, threshold=1000),
    "Tanh": torch.tanh,
}


@pytest.mark.parametrize("name", TORCH)
def test_activations_are_torchs(name):
    x = 3 * torch.randn(50, dtype=torch.float64)
    x.requires_grad_()
    theirs = x.detach().clone().requires_grad_()
    y, expected = reference.activation(name, x), TORCH[name](theirs)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    y.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, theirs.grad, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("LeakyReLU", -0.005), ("Squareplus", 0.01925824), ("Softplus", 6.715348e-4), ("SiLU", -0.1887703)],
)
def test_constants_are_those_of_tiny_cuda_nn(name, expected):
    """Worked out by hand at -0.5 from the formulas of its common_device.h."""
    at = torch.tensor(-0.5, dtype=torch.float64)
    assert reference.activation(name, at).item() == pytest.approx(expected, rel=1e-6)


def test_the_network_is_torchs_sequential():
    layers = [torch.nn.Linear(i, o, bias=False, dtype=torch.float64) for i, o in ((3, 5), (5, 5), (5, 2))]
    theirs = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.Tanh(), layers[2], torch.nn.Sigmoid())
    params = torch.cat([layer.weight.detach().flatten() for layer in layers])
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    y = reference.mlp(x, params, (3, 5, 5, 2), "Tanh", "Sigmoid")
    torch.testing.assert_close(y, theirs(x), rtol=1e-12, atol=1e-12)


def test_weights_are_counted():
    with pytest.raises(ValueError, match=r"7 weights do not fill layers between \(2, 3\)"):
        reference.mlp(torch.ones(1, 2), torch.ones(7), (2, 3))
