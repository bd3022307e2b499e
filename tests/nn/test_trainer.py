"""Trainer: what a loop written by hand would do, resumable to the bit, for all networks or a few."""

from __future__ import annotations

import builtins
import random

import numpy as np
import pytest
import torch
from torch import nn

from tinsmith import ArgumentError, CheckpointError, ConfigError, InputError
from tinsmith.nn import NetworkArray, Trainer
from tinsmith.nn.losses import make_loss
from tinsmith.nn.optimizers import RowOptimizer, make_optimizer

pytestmark = pytest.mark.thinned(4)

ADAM = {"otype": "Adam", "learning_rate": 0.01}
EMA = {"otype": "EMA", "decay": 0.9, "nested": ADAM}
LOOKAHEAD = {"otype": "Lookahead", "n_steps": 2, "nested": ADAM}
NETWORK = {"activation": "Tanh", "n_neurons": 8, "n_hidden_layers": 2}


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.25), nn.Linear(8, 3))


def array(engine, grid=(2, 3), seed=0, dtype=torch.float32):
    return NetworkArray(grid, 2, 3, NETWORK, seed=seed, dtype=dtype, engine=engine)


def batch(step, *lead, dtype=torch.float32):
    draw = torch.Generator().manual_seed(100 + step)
    x = torch.rand(*lead, 16, 2, generator=draw, dtype=dtype)
    return x, torch.stack([x[..., 0], x[..., 1].sin(), x.prod(-1)], -1)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# Steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [ADAM, EMA, {"otype": "SGD", "learning_rate": 0.1}], ids=lambda c: c["otype"])
@pytest.mark.parametrize("loss", ["L2", "RelativeL2"])
def test_a_step_is_what_torchs_own_loop_does(config, loss):
    ours, theirs = mlp(), mlp()
    trainer = Trainer(ours, config, loss)
    optimizer, criterion = make_optimizer(theirs, config), make_loss({"otype": loss})
    for step in range(5):
        x, target = batch(step)
        torch.manual_seed(step)
        returned = trainer.training_step(x, target)
        torch.manual_seed(step)
        optimizer.zero_grad()
        value = criterion(theirs(x), target)
        value.backward()
        optimizer.step()
        assert torch.equal(returned, value.detach()) and not returned.requires_grad
    assert torch.equal(weights(ours), weights(theirs))
    assert trainer.step == 5


def test_a_plain_loop_and_the_trainer_can_alternate(engine):
    """The loop's model, optimizer and gradients are the trainer's: neither hides state from the other."""
    models = [array(engine), array(engine)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    trainer = Trainer(models[0], optimizers[0], "L2")
    for step in range(6):
        x, target = batch(step, 2, 3)
        for model, optimizer in zip(models, optimizers, strict=True):
            if model is models[0] and step % 2:
                trainer.training_step(x, target)
                continue
            optimizer.zero_grad()
            model.loss(x, target).sum().backward()
            optimizer.step()
    assert torch.equal(weights(models[0]), weights(models[1]))


def test_each_network_of_an_array_learns_as_if_alone(engine):
    together = array(engine, dtype=torch.float64)
    alone = [together.part([cell]) for cell in range(6)]
    trainer = Trainer(together, ADAM, "L2")
    trainers = [Trainer(one, ADAM, lambda p, t: (p - t).square().mean()) for one in alone]
    for step in range(4):
        x, target = batch(step, 2, 3, dtype=torch.float64)
        losses = trainer.training_step(x, target)
        assert losses.shape == (2, 3)
        for cell, one in enumerate(trainers):
            loss = one.training_step(x.flatten(0, 1)[cell : cell + 1], target.flatten(0, 1)[cell : cell + 1])
            torch.testing.assert_close(loss, losses.flatten()[cell], rtol=1e-9, atol=1e-12)
    for cell, one in enumerate(alone):
        torch.testing.assert_close(together.params[cell], one.params[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "at", [[1, 4], [[0, 1], [1, 1]], [[False, True, False], [False, True, False]]], ids=["cells", "places", "mask"]
)
def test_only_the_networks_named_learn(engine, at):
    model = array(engine)
    trainer = Trainer(model, ADAM, "L2")
    trainer.training_step(*batch(0, 2, 3))
    before, state = model.params.detach().clone(), _moments(trainer)
    x, target = batch(1, 2)
    losses = trainer.training_step(x, target, at=torch.tensor(at))
    assert losses.shape == (2,)
    changed = (model.params.detach() != before).flatten(1).any(1)
    assert changed.tolist() == [False, True, False, False, True, False]
    for name, moment in _moments(trainer).items():
        assert (moment != state[name]).flatten(1).any(1).tolist() == changed.tolist(), name
    assert trainer.optimizer.counts.tolist() == [1, 2, 1, 1, 2, 1]


def test_networks_named_learn_as_they_would_among_all(engine):
    few, all_ = array(engine, dtype=torch.float64), array(engine, dtype=torch.float64)
    one, other = Trainer(few, ADAM, "L2"), Trainer(all_, ADAM, "L2")
    for step in range(3):
        x, target = batch(step, 2, 3, dtype=torch.float64)
        one.training_step(x.flatten(0, 1)[[5, 0]], target.flatten(0, 1)[[5, 0]], at=[5, 0])
        other.training_step(x, target)
    torch.testing.assert_close(few.params[[5, 0]], all_.params[[5, 0]], rtol=1e-9, atol=1e-12)


TABLE = {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 6, "base_resolution": 4}


@pytest.mark.costly
@pytest.mark.parametrize("names", [["params"], ["encoding.params"], ["encoding.params", "params"]])
def test_a_few_learn_with_an_optimizer_of_some_parameters_in_any_order(names):
    x, target = batch(0, 2, 3)
    trained = []
    for at in (None, [0, 1, 2, 3, 4, 5]):
        model = NetworkArray((2, 3), 2, 3, NETWORK, TABLE)
        optimizer = RowOptimizer([model.get_parameter(name) for name in names], {"otype": "SGD", "learning_rate": 0.1})
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        shown = (x, target) if at is None else (x.flatten(0, 1), target.flatten(0, 1))
        Trainer(model, optimizer, "L2").training_step(*shown, at=at)
        changed = [name for name, p in model.named_parameters() if not torch.equal(p, before[name])]
        assert sorted(changed) == sorted(names)
        trained.append(weights(model))
    torch.testing.assert_close(*trained)


@pytest.mark.costly
def test_a_few_learn_after_a_part_was_frozen():
    model = NetworkArray((2, 3), 2, 3, NETWORK, TABLE)
    trainer = Trainer(model, ADAM, "L2")
    trainer.training_step(*batch(0, 2, 3))
    model.encoding.requires_grad_(False)
    before = [p.detach().clone() for p in (model.params, model.encoding.params)]
    trainer.training_step(*batch(1, 2), at=[1, 2])
    changed = [not torch.equal(*pair) for pair in zip(before, (model.params, model.encoding.params), strict=True)]
    assert changed == [True, False]


def _moments(trainer):
    (part,) = trainer.optimizer.state_dict()["parts"]
    return {name: held.clone() for name, held in part["state"][0].items() if held.ndim}


def test_an_array_gets_an_optimizer_by_rows_where_there_is_one(engine):
    assert isinstance(Trainer(array(engine), ADAM).optimizer, RowOptimizer)
    assert isinstance(Trainer(array(engine), EMA).optimizer, RowOptimizer)
    assert not isinstance(Trainer(array(engine), LOOKAHEAD).optimizer, RowOptimizer)
    assert not isinstance(Trainer(mlp(), ADAM).optimizer, RowOptimizer)


def test_training_selected_networks_needs_a_suitable_optimizer(engine):
    with pytest.raises(ArgumentError, match="`at` chooses among the networks of a NetworkArray\n  model  Sequential"):
        Trainer(mlp(), ADAM).training_step(*batch(0), at=[0])
    with pytest.raises(ArgumentError, match="`at` chooses among the networks"):
        Trainer(mlp(), ADAM).inference(batch(0)[0], at=[0])
    with pytest.raises(
        ArgumentError, match="`at` needs an optimizer that can update single rows\n  optimizer  Lookahead"
    ):
        Trainer(array(engine), LOOKAHEAD).training_step(*batch(0, 1), at=[0])


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_compiled_array_is_refused(engine):
    """Its loss would be one mean over all networks, of which none learned as if alone."""
    with pytest.raises(ArgumentError, match="does not support a compiled NetworkArray") as refused:
        Trainer(torch.compile(array(engine)))
    assert "Pass the array itself" in str(refused.value)


def test_an_optimizer_is_named_as_a_loss_is(engine):
    for model in (mlp(), array(engine)):
        named, configured = Trainer(model, "sgd", "L2").optimizer, Trainer(model, {"otype": "SGD"}, "L2").optimizer
        assert type(named) is type(configured) and str(named.state_dict()) == str(configured.state_dict())
    with pytest.raises(ConfigError, match="Adam"):
        Trainer(mlp(), "Adan")


def test_misspelled_options_are_refused():
    with pytest.raises(ConfigError, match="RelativeL2"):
        Trainer(mlp(), ADAM, "RelativL2")
    with pytest.raises(ConfigError, match="learning_rate"):
        Trainer(mlp(), {"otype": "Adam", "learning_rat": 0.1})
    with pytest.raises(ArgumentError, match="`log_every` of the Trainer must be a positive integer"):
        Trainer(mlp(), log_every=0)


# Inference -----------------------------------------------------------------------------------


def test_training_and_inference_mix():
    """Inference in between changes nothing of the training, not even the dropout that comes next."""
    ours, theirs = mlp(), mlp()
    mixed, plain = Trainer(ours, EMA, "L2"), Trainer(theirs, EMA, "L2")
    torch.manual_seed(3)
    for step in range(6):
        mixed.training_step(*batch(step))
        assert not mixed.inference(batch(7)[0]).requires_grad
        assert ours.training and ours[2].training
    torch.manual_seed(3)
    for step in range(6):
        plain.training_step(*batch(step))
    assert torch.equal(weights(ours), weights(theirs))


def test_inference_sees_the_averages_and_no_dropout():
    model = mlp()
    trainer = Trainer(model, EMA, "L2")
    for step in range(6):
        trainer.training_step(*batch(step))
    x, own = batch(7)[0], weights(model)
    with trainer.optimizer.use_averages():
        expected = model.eval()(x)
    model.train()
    assert torch.equal(trainer.inference(x), expected)
    assert not torch.equal(model.eval()(x), expected)
    assert torch.equal(weights(model), own)


def test_inference_of_a_few(engine):
    trainer = Trainer(array(engine), ADAM)
    x = batch(0, 2, 3)[0]
    torch.testing.assert_close(trainer.inference(x[1, :2], at=[[1, 0], [1, 1]]), trainer.inference(x)[1, :2])


def test_inference_leaves_the_modes_even_when_it_fails():
    model = mlp()
    model[0].eval()
    with pytest.raises(RuntimeError):
        Trainer(model, ADAM).inference(torch.rand(4, 5))
    assert [part.training for part in model] == [False, True, True, True]


# fit -----------------------------------------------------------------------------------------


def test_fit_takes_lists_and_functions():
    three = [batch(step) for step in range(3)]
    ours, theirs, by_hand = (Trainer(mlp(), ADAM, "L2") for _ in range(3))
    for trainer, batches in ((ours, three), (theirs, lambda step: three[step % 3])):
        torch.manual_seed(5)
        trainer.fit(batches, 7, progress=False)
    torch.manual_seed(5)
    for step in range(7):
        last = by_hand.training_step(*three[step % 3])
    assert ours.step == theirs.step == 7
    assert torch.equal(weights(ours.model), weights(by_hand.model))
    assert torch.equal(weights(theirs.model), weights(by_hand.model))
    assert torch.equal(ours.fit(three, 0, progress=False), torch.empty(0))
    assert last.ndim == 0


def test_fit_says_that_batches_ended():
    drawn = (batch(step) for step in range(3))
    trainer = Trainer(mlp(), ADAM, "L2")
    with pytest.raises(ArgumentError, match="`batches` was exhausted before the last step"):
        trainer.fit(drawn, 4, progress=False)
    assert trainer.step == 3


def test_fit_shows_its_progress(capsys):
    losses = Trainer(mlp(), ADAM, "L2").fit(batch, 5)
    shown = capsys.readouterr().out
    assert "training" in shown and "5/5" in shown and f"loss {losses.item():.3g}" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    Trainer(mlp(), ADAM, "L2").fit(batch, 2, progress=False)
    assert capsys.readouterr().out == ""


# Checkpoints ---------------------------------------------------------------------------------

MAKERS = {
    "module, EMA": lambda engine: Trainer(mlp(), EMA, "L2"),
    "module, torch's": lambda engine: _torchs(torch.optim.AdamW),
    "module, Lookahead": lambda engine: Trainer(mlp(), LOOKAHEAD, "L2"),
    "module, Shampoo": lambda engine: Trainer(mlp(), {"otype": "Shampoo", "learning_rate": 0.01}, "L2"),
    "array": lambda engine: Trainer(array(engine), ADAM, "L2"),
    "array, EMA": lambda engine: Trainer(array(engine), EMA, "L2"),
    "array of grids": lambda engine: Trainer(_grids(engine), EMA, "L2"),
    "array, Lookahead": lambda engine: Trainer(array(engine), LOOKAHEAD, "L2"),
}


def _grids(engine):
    grid = {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 6, "base_resolution": 4}
    return NetworkArray((2, 3), 2, 3, NETWORK, grid, dtype=torch.float32, engine=engine)


def _torchs(kind):
    model = mlp()
    return Trainer(model, kind(model.parameters(), lr=0.01), "L2")


def _go_on(trainer, steps):
    """Train with batches that use every global generator; in arrays, every third step trains a few networks."""
    for _ in range(steps):
        lead = (2, 3) if isinstance(trainer.model, NetworkArray) else ()
        by_rows = isinstance(trainer.optimizer, RowOptimizer) and trainer.step % 3 == 2
        x = torch.rand(*((2,) if by_rows else lead), 8, 2)
        scale = random.random() + float(np.random.rand())
        trainer.training_step(
            x, x.sum(-1, keepdim=True).expand(*x.shape[:-1], 3) * scale, at=[1, 4] if by_rows else None
        )


@pytest.mark.thinned(4)
@pytest.mark.parametrize("at", [0, 5])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_resumed_run_goes_on_bit_for_bit(engine, kind, at, tmp_path):
    path = tmp_path / "run.safetensors"
    straight = MAKERS[kind](engine)
    torch.manual_seed(1)
    _go_on(straight, at)
    straight.save(path, {"note": "half way", "places": [torch.arange(3), (1.5, None, True)]})
    _go_on(straight, 6)
    drawn = (torch.rand(3).tolist(), random.random(), np.random.rand())

    torch.manual_seed(999)
    resumed = MAKERS[kind](engine)
    with torch.no_grad():
        for parameter in resumed.model.parameters():
            parameter.add_(1)  # the checkpoint, not the seed, brings the weights back
    extra = resumed.load(path)
    assert extra["note"] == "half way" and extra["places"][1] == (1.5, None, True)
    assert extra["places"][0].tolist() == [0, 1, 2]
    assert resumed.step == at
    _go_on(resumed, 6)
    assert resumed.step == at + 6
    assert torch.equal(weights(resumed.model), weights(straight.model))
    assert (torch.rand(3).tolist(), random.random(), np.random.rand()) == drawn
    lead = (2, 3) if isinstance(resumed.model, NetworkArray) else ()
    x = batch(3, *lead)[0]
    assert torch.equal(resumed.inference(x), straight.inference(x))


def test_a_state_is_not_changed_by_training_from_it():
    trainer = Trainer(mlp(), ADAM, "L2")
    trainer.training_step(*batch(0))
    state = {**trainer.state_dict(), "model": {k: v.clone() for k, v in trainer.model.state_dict().items()}}
    ends = []
    for _ in range(2):
        again = Trainer(mlp(3), ADAM, "L2")
        again.load_state_dict(state)
        for step in range(3):
            again.training_step(*batch(step))
        ends.append(weights(again.model))
    assert torch.equal(*ends)


def test_the_same_run_writes_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        random.seed(0)
        np.random.seed(0)
        trainer = Trainer(mlp(), EMA, "L2")
        trainer.training_step(*batch(0))
        trainer.save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}


def test_checkpoints_that_do_not_fit(engine, tmp_path):
    path = tmp_path / "run.safetensors"
    Trainer(mlp(), ADAM).save(path)
    with pytest.raises(
        CheckpointError, match=r"belongs to another model\n  tensor    params\n  expected  .*\n  got       none"
    ):
        Trainer(array(engine), ADAM).load(path)
    wide = nn.Sequential(nn.Linear(2, 9), nn.Tanh(), nn.Dropout(), nn.Linear(9, 3))
    with pytest.raises(CheckpointError, match=r"0.weight\n  expected  \(9, 2\)\n  got       \(8, 2\)"):
        Trainer(wide, ADAM).load(path)
    trainer = Trainer(mlp(7), EMA)
    before = weights(trainer.model)
    with pytest.raises(CheckpointError, match="saved by another optimizer"):
        trainer.load(path)
    model = mlp()
    two_groups = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[3].parameters()}])
    with pytest.raises(CheckpointError, match="saved by another optimizer|optimizer state does not fit"):
        Trainer(model, two_groups).load(path)
    assert torch.equal(weights(trainer.model), before) and trainer.step == 0


def _no_text(path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, path)


def _other(path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, path, {"tinsmith": '{"dict": [["trainer", {"tensor": "b"}]]}'})


DAMAGES = {
    "missing": (lambda path: path.unlink(), "because"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-8]), "because"),
    "text": (lambda path: path.write_text("hello " * 30), "because"),
    "of another program": (_no_text, "tinsmith did not write it"),
    "without a tensor": (_other, "KeyError('b')"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_broken_checkpoints(damage, tmp_path):
    change, words = DAMAGES[damage]
    path = tmp_path / "run.safetensors"
    trainer = Trainer(mlp(), ADAM)
    trainer.save(path)
    change(path)
    with pytest.raises(CheckpointError) as refused:
        trainer.load(path)
    assert "the checkpoint is broken" in str(refused.value)
    assert str(path) in str(refused.value) and words in str(refused.value)
    assert "Pass an intact file" in str(refused.value)


def test_a_state_of_something_else():
    with pytest.raises(CheckpointError, match="This is not the state of a Trainer"):
        Trainer(mlp(), ADAM).load_state_dict({"model": {}})


def test_states_that_cannot_be_saved_are_refused(tmp_path):
    trainer = Trainer(mlp(), ADAM)
    with pytest.raises(InputError, match="the checkpoint cannot be written"):
        trainer.save(tmp_path / "none" / "run.safetensors")
    with pytest.raises(ArgumentError, match=r"at        extra.deep.0\n  got       set"):
        trainer.save(tmp_path / "run.safetensors", {"deep": [{1, 2}]})
    assert not list(tmp_path.iterdir())


# Logs ----------------------------------------------------------------------------------------


def _logged(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    events = {name: read.Scalars(name) for name in read.Tags()["scalars"]}
    assert all(len({event.step for event in some}) == len(some) for some in events.values())  # none twice
    return {name: {event.step: event.value for event in some} for name, some in events.items()}


def test_tensorboard_gets_losses_and_rates(engine, tmp_path):
    pytest.importorskip("tensorboard")
    trainer = Trainer(array(engine), ADAM, "L2", log_dir=tmp_path, log_every=2)
    losses = {step + 1: trainer.training_step(*batch(step, 2, 3)) for step in range(5)}
    trainer.log(psnr=31.5)
    trainer.close()
    logged = _logged(tmp_path)
    assert set(logged) == {"loss", "loss_of_the_worst", "learning_rate", "psnr"}
    assert logged["loss"] == pytest.approx({step: losses[step].mean().item() for step in (2, 4)})
    assert logged["loss_of_the_worst"] == pytest.approx({step: losses[step].max().item() for step in (2, 4)})
    assert logged["learning_rate"] == pytest.approx({2: 0.01, 4: 0.01}) and logged["psnr"] == {5: 31.5}


def test_a_resumed_run_s_logs_go_on(tmp_path):
    pytest.importorskip("tensorboard")
    path, logs = tmp_path / "run.safetensors", tmp_path / "logs"
    first = Trainer(mlp(), ADAM, "L2", log_dir=logs, log_every=1)
    for step in range(3):
        first.training_step(*batch(step))
    first.save(path)
    first.training_step(*batch(3))  # written, and then lost: the run goes on from the checkpoint
    first.close()
    again = Trainer(mlp(), ADAM, "L2", log_dir=logs, log_every=1)
    again.load(path)
    again.fit(lambda step: batch(step), 3, progress=False)
    again.close()
    assert sorted(_logged(logs)["loss"]) == [1, 2, 3, 4, 5, 6]


def test_without_log_dir_nothing_is_logged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = Trainer(mlp(), ADAM, "L2", log_every=1)
    trainer.training_step(*batch(0))
    trainer.log(psnr=1.0)
    trainer.close()
    assert not list(tmp_path.iterdir())


def test_without_tensorboard_it_says_what_to_install(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name == "torch.utils.tensorboard":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"needs tensorboard, .*\nRun pip install .*, or leave out log_dir\."):
        Trainer(mlp(), ADAM, log_dir=tmp_path)
