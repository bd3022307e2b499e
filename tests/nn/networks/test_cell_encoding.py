"""Encodings before an array's networks."""

import pytest
import torch

import tinsmith as ts
from tinsmith.nn import Encoding, NetworkArray, RowOptimizer, Trainer

pytestmark = pytest.mark.thinned(3)

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
NETWORK = {"n_neurons": 8, "n_hidden_layers": 2}
GRID = {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 6, "base_resolution": 4}
ENCODINGS = {"of none's own": {"otype": "Frequency", "n_frequencies": 3}, "of each one's own": GRID}


@pytest.fixture(params=ENCODINGS.values(), ids=ENCODINGS.keys())
def array(request, engine):
    found = NetworkArray((2, 2), 2, 3, NETWORK, request.param, dtype=torch.float64, engine=engine, way="fused")
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(
                0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
            )
    return found


def of_each(array, x):
    """[cell, batch, n_in] encoded cell by cell."""
    found = []
    for cell, batch in enumerate(x):
        one = Encoding(2, array.encoding.section, dtype=torch.float64, engine=array.engine)
        params = array.encoding.params[cell] if len(one.params) else one.params
        found.append(torch.func.functional_call(one, {"params": params}, (batch,)))
    return torch.stack(found)


def plain(array, x):
    bare = NetworkArray(4, array.layout.shape.n_in, 3, NETWORK, dtype=torch.float64, way="matrices")
    return torch.func.functional_call(bare, {"params": array.params}, (of_each(array, x),))


def positions(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_forward_and_backward(array):
    x = positions(2, 2, 6, 2).requires_grad_()
    cotangent = torch.randn(4, 6, 3, dtype=torch.float64)
    parameters = [x, *array.parameters()]
    ours, true = array(x).flatten(0, 1), plain(array, x.flatten(0, 1))
    torch.testing.assert_close(ours, true, **CLOSE)
    wanted = torch.autograd.grad(true, parameters, cotangent)
    for one, other in zip(torch.autograd.grad(ours, parameters, cotangent), wanted, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def test_losses_of_a_part(array):
    x, target = positions(2, 6, 2), torch.randn(2, 6, 3, dtype=torch.float64)
    losses = array.loss(x, target, at=[1, 3])
    true = (plain(array, torch.stack([x[0], x[0], x[1], x[1]]))[[1, 3]] - target).square().mean((1, 2))
    torch.testing.assert_close(losses, true, **CLOSE)
    torch.testing.assert_close(array.part([1, 3]).loss(x, target), true, **CLOSE)


def test_scattered_points(array):
    points, cells = positions(30, 2), torch.randint(0, 4, (30,), generator=torch.Generator().manual_seed(2))
    true = plain(array, points.expand(4, 30, 2))[cells, torch.arange(30)]
    torch.testing.assert_close(array.routed(points, cells), true, **CLOSE)


def test_training_a_few_leaves_the_others_as_they_were(array):
    trainer = Trainer(array, RowOptimizer(array, {"otype": "Adam", "learning_rate": 0.01}))
    before = [parameter.detach().clone() for parameter in array.parameters()]
    trainer.training_step(positions(1, 6, 2), torch.ones(1, 6, 3, dtype=torch.float64), at=[2])
    for parameter, old in zip(array.parameters(), before, strict=True):
        assert (parameter != old).flatten(1).any(1).tolist() == [False, False, True, False]


def test_networks_start_with_tables_of_their_own(engine):
    array = NetworkArray(3, 2, 1, NETWORK, GRID, engine=engine)
    assert array.encoding.params.shape[0] == 3
    assert not torch.equal(array.encoding.params[0], array.encoding.params[1])
    assert ts.nn.NetworkArray(3, 2, 1, NETWORK, {"otype": "Identity"}, engine=engine).encoding.params.numel() == 0
