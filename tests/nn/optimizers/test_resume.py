"""Checkpoints: a run that was saved, written, read and resumed goes on bit for bit."""

from __future__ import annotations

import io
import pickle

import pytest
import torch

from support.optimizers import draw_gradients, make_parameters, train
from tinsmith import ArgumentError, CheckpointError
from tinsmith.nn.optimizers import make_optimizer, use_averages

ADAM = {"otype": "Adam", "learning_rate": 0.1}
CONFIGS = {
    "adam": ADAM,
    "adam with extras": {**ADAM, "adabound": True, "relative_decay": 0.1},
    "sgd": {"otype": "SGD"},
    "novograd": {"otype": "Novograd", "absolute_decay": 0.1},
    "shampoo": {"otype": "Shampoo", "learning_rate": 0.1},
    "shampoo ungrafted": {"otype": "Shampoo", "learning_rate": 0.1, "frobenius_normalization": False},
    "lookahead": {"otype": "Lookahead", "n_steps": 3, "nested": ADAM},
    "ema": {"otype": "EMA", "nested": ADAM},
    "average": {"otype": "Average", "n_samples": 4, "nested": ADAM},
    "batched": {"otype": "Batched", "batch_size_multiplier": 3, "nested": ADAM},
    "decay": {"otype": "ExponentialDecay", "decay_start": 2, "decay_interval": 3, "nested": ADAM},
    "composite": {
        "otype": "Composite",
        "nested": [{"otype": "EMA", "n_params_to_optimize": 24}, {"otype": "Lookahead", "n_steps": 2}],
    },
    "all": {
        "otype": "ExponentialDecay",
        "decay_start": 3,
        "decay_interval": 2,
        "nested": {
            "otype": "EMA",
            "nested": {
                "otype": "Lookahead",
                "n_steps": 3,
                "nested": {"otype": "Batched", "batch_size_multiplier": 2, "nested": {"otype": "Novograd"}},
            },
        },
    },
}


def _written_and_read(state: dict) -> dict:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)  # nothing in it that could run code


@pytest.mark.thinned(4)
@pytest.mark.parametrize("at", [0, 4, 11])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_resumed_run_goes_on_bit_for_bit(name, at):
    given = make_parameters((6, 4), (5,), dtype=torch.float32)
    drawn = draw_gradients(given, 16, zeros=0.3)
    straight = make_optimizer(given, CONFIGS[name])
    train(straight, given, drawn[:at])
    saved = _written_and_read(straight.state_dict())
    resumed_from = [torch.nn.Parameter(p.detach().clone()) for p in given]
    train(straight, given, drawn[at:])

    resumed = make_optimizer(resumed_from, CONFIGS[name])
    resumed.load_state_dict(saved)
    train(resumed, resumed_from, drawn[at:])
    for p, q in zip(given, resumed_from, strict=True):
        assert torch.equal(p, q)
    with use_averages(straight), use_averages(resumed):
        for p, q in zip(given, resumed_from, strict=True):
            assert torch.equal(p, q)


@pytest.mark.parametrize(
    "config",
    [
        {"otype": "Average", "n_samples": 4, "nested": {"otype": "SGD"}},
        {"otype": "Batched", "batch_size_multiplier": 3, "nested": {"otype": "SGD"}},
        {"otype": "EMA", "nested": {"otype": "SGD"}},
        {"otype": "Shampoo", "learning_rate": 0.1},
    ],
)
def test_a_state_that_was_loaded_can_be_loaded_again(config):
    """Training does not reach into it. (torch's own optimizers do share what they load.)"""
    given = make_parameters((6, 4), (5,))
    drawn = draw_gradients(given, 8)
    optimizer = make_optimizer(given, config)
    train(optimizer, given, drawn[:4])
    saved = _written_and_read(optimizer.state_dict())
    ends = []
    for _ in range(2):
        again = [torch.nn.Parameter(p.detach().clone()) for p in given]
        resumed = make_optimizer(again, config)
        resumed.load_state_dict(saved)
        train(resumed, again, drawn[4:])
        with use_averages(resumed):
            ends.append(again[0].detach().clone())
    assert torch.equal(*ends)


OF_LIBRARY = ("novograd", "shampoo", "shampoo ungrafted", "lookahead", "composite", "all")


@pytest.mark.parametrize("name", OF_LIBRARY)
def test_optimizers_that_cannot_be_pickled_are_refused(name):
    with pytest.raises(ArgumentError, match="of pytorch_optimizer cannot be pickled or deep-copied") as caught:
        pickle.dumps(make_optimizer(make_parameters((6, 4), (5,)), CONFIGS[name]))
    assert "Save its state_dict()" in str(caught.value)


@pytest.mark.parametrize("name", sorted(set(CONFIGS) - set(OF_LIBRARY)))
def test_pickled_with_its_parameters_an_optimizer_goes_on(name):
    given = make_parameters((6, 4), (5,))
    drawn = draw_gradients(given, 8)
    optimizer = make_optimizer(given, CONFIGS[name])
    train(optimizer, given, drawn[:4])
    again, twin = pickle.loads(pickle.dumps((given, optimizer)))
    train(optimizer, given, drawn[4:])
    train(twin, again, drawn[4:])
    for p, q in zip(given, again, strict=True):
        assert torch.equal(p, q)
    with use_averages(optimizer), use_averages(twin):
        assert torch.equal(given[0], again[0])


def test_the_state_of_another_optimizer_is_refused():
    (w,) = make_parameters((6, 4))
    saved = make_optimizer([w], {"otype": "EMA"}).state_dict()
    with pytest.raises(CheckpointError) as caught:
        make_optimizer([w], {"otype": "Lookahead"}).load_state_dict(saved)
    assert "expected  Lookahead" in str(caught.value)
    assert "got       EMA" in str(caught.value)
    with pytest.raises(CheckpointError, match="a plain optimizer"):
        make_optimizer([w], {"otype": "EMA"}).load_state_dict(make_optimizer([w]).state_dict())
