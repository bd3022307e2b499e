"""Arrays from ordinary modules and back."""

import pytest
import torch
from torch import nn

import tinsmith as ts
from tinsmith.nn import Activation, NetworkArray, stack, unstack


def mlp(*sizes, act=nn.ReLU, out=None, bias=True):
    layers = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b, bias=bias, dtype=torch.float64), act()]
    return nn.Sequential(*layers[:-1], *([out()] if out else []))


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((3, 8, 8, 2), {}),
        ((3, 5, 2), {"act": nn.Tanh, "out": nn.Sigmoid, "bias": False}),
        ((2, 4, 4, 4, 1), {"act": lambda: nn.Softplus(beta=10)}),
        ((2, 4, 3), {"act": lambda: Activation("Sine"), "out": nn.Tanh}),
        ((3, 2), {}),
    ],
)
def test_stacking_and_unstacking_gives_the_same_networks(engine, sizes, options):
    networks = [mlp(*sizes, **options) for _ in range(6)]
    array = stack(networks, (3, 2))
    array.engine = engine
    x = torch.randn(3, 2, 5, sizes[0], dtype=torch.float64)
    wanted = torch.stack([one(batch) for one, batch in zip(networks, x.flatten(0, 1), strict=True)])
    torch.testing.assert_close(array(x).flatten(0, 1), wanted, rtol=1e-10, atol=1e-12)
    for one, twin in zip(networks, unstack(array), strict=True):
        for a, b in zip(one.parameters(), twin.parameters(), strict=True):
            assert torch.equal(a, b)
        torch.testing.assert_close(one(x), twin(x))


REFUSED = {
    "shapes": (lambda: [mlp(2, 4, 1), mlp(2, 8, 1)], "are built differently(.|\n)*network 1"),
    "widths": (lambda: [mlp(2, 4, 8, 1)], "network 0 has hidden layers of several widths"),
    "activations": (
        lambda: [nn.Sequential(*mlp(2, 4, 4), nn.Tanh(), *mlp(4, 4, 1))],
        "network 0 has several activations",
    ),
    "a layer": (lambda: [nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4))], "layer 1 of network 0"),
    "another slope": (lambda: [mlp(2, 4, 1, act=lambda: nn.LeakyReLU(0.2))], "layer 1 of network 0"),
    "an earlier line": (lambda: [mlp(2, 4, 1, act=lambda: nn.Softplus(beta=10, threshold=1))], "layer 1 of network 0"),
    "no Sequential": (lambda: [nn.Linear(2, 4)], "network 0 is not an nn.Sequential(.|\n)*got +Linear"),
    "no list of them": (lambda: mlp(2, 4, 1), "network 0 is not an nn.Sequential(.|\n)*Pass a list of them"),
    "nothing": (lambda: [nn.Sequential()], "network 0 has no nn.Linear"),
    "none": (list, "got no networks"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals(make, words):
    with pytest.raises(ts.ArgumentError, match=words):
        stack(make())


def test_a_grid_of_another_size_is_refused():
    with pytest.raises(ts.ArgumentError, match="does not have one cell for each network"):
        stack([mlp(2, 4, 1)] * 3, (2, 2))


def test_an_array_with_an_encoding_is_not_unstacked():
    array = NetworkArray(2, 2, 1, {"n_neurons": 4}, {"otype": "Frequency"})
    with pytest.raises(ts.ArgumentError, match="with an encoding cannot be unstacked"):
        unstack(array)


def test_networks_from_a_generator():
    assert stack(nn.Sequential(nn.Linear(2, 3)) for _ in range(4)).grid_shape == (4,)


def test_activations_by_name():
    x = torch.randn(5)
    assert torch.equal(Activation("relu")(x), x.relu())
    with pytest.raises(ts.ConfigError, match="Squareplus"):
        Activation("gelu")
