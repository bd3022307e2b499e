"""A flat parameter is optimized as if its matrices and what is behind them were parameters of their own."""

from __future__ import annotations

import copy

import pytest
import torch

from tinsmith.nn import NetworkWithInputEncoding, make_optimizer, use_averages

GRID = {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 5, "base_resolution": 4}
MLP = {"otype": "FullyFusedMLP", "n_neurons": 4, "n_hidden_layers": 1, "activation": "Tanh"}

CONFIGS = [
    {"otype": "Adam", "learning_rate": 0.05, "l2_reg": 0.1},
    {"otype": "Adam", "learning_rate": 0.05, "non_matrix_learning_rate_factor": 3.0, "relative_decay": 0.1},
    {"otype": "Adam", "optimize_matrix_params": False},
    {"otype": "SGD", "learning_rate": 0.05},
    {"otype": "Shampoo", "learning_rate": 0.05},
    {"otype": "Novograd", "learning_rate": 0.05},
    {"otype": "EMA", "decay": 0.5, "nested": {"otype": "Lookahead", "n_steps": 2, "nested": {"otype": "Adam"}}},
    {"otype": "Batched", "batch_size_multiplier": 2, "nested": {"otype": "SGD"}},
    {
        "otype": "Composite",
        "nested": [{"otype": "SGD", "n_params_to_optimize": 28}, {"otype": "Adam", "learning_rate": 0.1}],
    },
]


def flat_model():
    model = NetworkWithInputEncoding(2, 3, GRID, MLP, alignment=1)
    torch.nn.init.uniform_(model.params, -0.5, 0.5)
    return model


def taken_apart(model):
    """Split a model's numbers into parameters of their own, as `make_optimizer` takes them."""
    shapes = [*model.matrix_shapes, (-1,)]
    pieces = model.params.detach().clone().split([*model.mlp.sizes, model.encoder.n_params])
    parameters = [torch.nn.Parameter(piece.view(shape)) for piece, shape in zip(pieces, shapes, strict=True)]
    matrices = {"params": parameters[:-1], "matrix": True}
    return parameters, [matrices, {"params": parameters[-1:], "matrix": False}]


def joined(parameters):
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["otype"])
def test_steps_are_those_of_parameters_of_their_own(config):
    model = flat_model()
    parameters, groups = taken_apart(model)
    ours, theirs = make_optimizer(model, config), make_optimizer(groups, config)
    start = model.params.detach().clone()
    for _ in range(4):
        gradient = torch.randn_like(model.params) * (torch.rand_like(model.params) > 0.3)
        ours.zero_grad()
        model.params.backward(gradient)
        for parameter, piece in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = piece.view(parameter.shape).clone()
        ours.step()
        theirs.step()
        torch.testing.assert_close(model.params.detach(), joined(parameters), rtol=1e-6, atol=1e-7)
    assert not torch.equal(model.params.detach(), start)
    with use_averages(ours), use_averages(theirs):
        torch.testing.assert_close(model.params.detach(), joined(parameters), rtol=1e-6, atol=1e-7)


def test_the_table_has_no_decay_and_what_no_sample_met_stays():
    model = flat_model()
    optimizer = make_optimizer(model, {"otype": "Adam", "l2_reg": 1.0})
    before = model.params.detach().clone()
    (0.0 * model.params.sum()).backward()
    optimizer.step()
    count = sum(model.mlp.sizes)
    assert (model.params[:count] != before[:count]).all()
    assert torch.equal(model.params[count:], before[count:])


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_cleared(set_to_none):
    model = flat_model()
    optimizer = make_optimizer(model, {"otype": "Adam"})
    optimizer.zero_grad(set_to_none)
    model.params.sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none)
    assert model.params.grad is None if set_to_none else not model.params.grad.any()
    assert all(piece.grad is None for group in optimizer.param_groups for piece in group["params"])


def test_the_pieces_follow_a_module_that_moves():
    model, twin = flat_model(), flat_model()
    twin.load_state_dict(model.state_dict())
    optimizer, right = make_optimizer(model, {"otype": "SGD"}), make_optimizer(twin.double(), {"otype": "SGD"})
    model.double()
    for module, own in ((model, optimizer), (twin, right)):
        module.params.square().sum().backward()
        own.step()
    assert model.params.dtype == torch.float64
    assert torch.equal(model.params, twin.params)


def test_a_run_resumes_bit_for_bit():
    config = {"otype": "EMA", "nested": {"otype": "Adam", "learning_rate": 0.1}}

    def steps(model, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            model.params.sin().sum().backward()
            optimizer.step()

    model = flat_model()
    optimizer = make_optimizer(model, config)
    steps(model, optimizer, 3)
    resumed = flat_model()
    resumed.load_state_dict(model.state_dict())
    again = make_optimizer(resumed, config)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    steps(model, optimizer, 3)
    steps(resumed, again, 3)
    assert torch.equal(model.params, resumed.params)
    with use_averages(optimizer), use_averages(again):
        assert torch.equal(model.params, resumed.params)
