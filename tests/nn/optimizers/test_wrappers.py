"""What wraps other optimizers: each against its formula, and around each other."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from support.optimizers import draw_gradients, make_parameters, train
from tinsmith import ArgumentError, ConfigError, nn
from tinsmith._extras import install_command
from tinsmith.nn.optimizers import make_optimizer, use_averages

SGD = {"otype": "SGD", "learning_rate": 0.1, "l2_reg": 0.0}


def _close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-11, atol=1e-11)


def _path(w: torch.Tensor, drawn: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    """Return the weights after each step of SGD."""
    path, at = [], w.detach().clone()
    for (grad,) in drawn:
        at = at - 0.1 * grad
        path.append(at)
    return path


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_ema(steps):
    (w,) = make_parameters((3, 2))
    drawn = draw_gradients([w], steps)
    path = _path(w, drawn)
    optimizer = make_optimizer([w], {"otype": "EMA", "decay": 0.8, "nested": SGD})
    train(optimizer, [w], drawn)
    shares = [0.8 ** (steps - 1 - s) for s in range(steps)]
    with use_averages(optimizer):
        _close(w, sum(share * at for share, at in zip(shares, path, strict=True)) / sum(shares))
    _close(w, path[-1])


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_average(steps):
    (w,) = make_parameters((3, 2))
    drawn = draw_gradients([w], steps)
    path = _path(w, drawn)
    optimizer = make_optimizer([w], {"otype": "Average", "n_samples": 3, "nested": SGD})
    train(optimizer, [w], drawn)
    with optimizer.use_averages():
        _close(w, torch.stack(path[-3:]).mean(0))
    _close(w, path[-1])


@pytest.mark.parametrize("otype", ["EMA", "Average", "Lookahead"])
def test_before_the_first_step_the_weights_are_the_parameters(otype):
    (w,) = make_parameters((3, 2))
    before = w.detach().clone()
    with use_averages(make_optimizer([w], {"otype": otype})):
        assert torch.equal(w, before)


def test_own_weights_are_back_after_an_error():
    (w,) = make_parameters((3, 2))
    optimizer = make_optimizer([w], {"otype": "EMA", "nested": SGD})
    train(optimizer, [w], draw_gradients([w], 3))
    own = w.detach().clone()

    def inference() -> None:
        with use_averages(optimizer):
            assert not torch.equal(w, own)
            raise KeyError

    with pytest.raises(KeyError):
        inference()
    assert torch.equal(w, own)


@pytest.mark.parametrize(("full", "dtype"), [(True, torch.float32), (False, torch.bfloat16)])
def test_full_precision_averages_of_halves(full, dtype):
    (w,) = make_parameters((3, 2), dtype=torch.bfloat16)
    optimizer = make_optimizer([w], {"otype": "EMA", "full_precision": full, "nested": SGD})
    train(optimizer, [w], draw_gradients([w], 3))
    assert optimizer.weights()[0].dtype == dtype
    with use_averages(optimizer):
        assert w.dtype == torch.bfloat16


def test_batched():
    (w,) = make_parameters((3, 2))
    drawn = draw_gradients([w], 7)
    expected = w.detach().clone()
    optimizer = make_optimizer([w], {"otype": "Batched", "batch_size_multiplier": 3, "nested": SGD})
    for i in (0, 3):
        expected = expected - 0.1 * sum(grad for (grad,) in drawn[i : i + 3]) / 3
    train(optimizer, [w], drawn)
    _close(w, expected)
    assert torch.equal(w.grad, drawn[-1][0])


def test_lookahead():
    (w,) = make_parameters((3, 2))
    slow = fast = w.detach().clone()
    drawn = draw_gradients([w], 7)
    optimizer = make_optimizer([w], {"otype": "Lookahead", "alpha": 0.3, "n_steps": 2, "nested": SGD})
    for step, (grad,) in enumerate(drawn, 1):
        fast = fast - 0.1 * grad
        if step % 2 == 0:
            slow = fast = slow * 0.7 + fast * 0.3
    train(optimizer, [w], drawn)
    _close(w, fast)
    with use_averages(optimizer):
        _close(w, slow)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_lookahead_may_go_none_or_all_of_the_way(alpha):
    (w,) = make_parameters((3, 2))
    start = w.detach().clone()
    drawn = draw_gradients([w], 4)
    optimizer = make_optimizer([w], {"otype": "Lookahead", "alpha": alpha, "n_steps": 2, "nested": SGD})
    train(optimizer, [w], drawn)
    _close(w, start - alpha * 0.1 * sum(grad for (grad,) in drawn))
    with use_averages(optimizer):
        _close(w, start - alpha * 0.1 * sum(grad for (grad,) in drawn))


@pytest.mark.parametrize("resumed", [False, True])
def test_a_lookahead_within_a_lookahead_counts_for_itself(resumed):
    (w,) = make_parameters((3, 2))
    outer = inner = fast = w.detach().clone()
    drawn = draw_gradients([w], 7)
    config = {"otype": "Lookahead", "alpha": 0.3, "n_steps": 2, "nested": SGD}
    config = {"otype": "Lookahead", "alpha": 0.6, "n_steps": 3, "nested": config}
    optimizer = make_optimizer([w], config)
    for step, (grad,) in enumerate(drawn, 1):
        fast = fast - 0.1 * grad
        if step % 2 == 0:
            inner = fast = inner * 0.7 + fast * 0.3
        if step % 3 == 0:
            outer = fast = outer * 0.4 + fast * 0.6
    train(optimizer, [w], drawn[:4])
    if resumed:
        saved, optimizer = optimizer.state_dict(), make_optimizer([w], config)
        optimizer.load_state_dict(saved)
    train(optimizer, [w], drawn[4:])
    _close(w, fast)
    with use_averages(optimizer):
        _close(w, outer)


def test_exponential_decay():
    (w,) = make_parameters((3, 2))
    config = {"otype": "ExponentialDecay", "decay_base": 0.5, "decay_start": 2, "decay_interval": 3, "decay_end": 6}
    optimizer = make_optimizer([w], {**config, "nested": SGD})
    rates = []
    for row in draw_gradients([w], 10):
        train(optimizer, [w], [row])
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1] * 2 + [0.05] * 3 + [0.025] * 5)


def test_a_learning_rate_set_outside_arrives_inside_and_stays():
    (w,) = make_parameters((3, 2))
    before = w.detach().clone()
    config = {"otype": "ExponentialDecay", "decay_start": 1, "nested": {"otype": "EMA", "nested": SGD}}
    optimizer = make_optimizer([w], config)
    optimizer.param_groups[0]["lr"] = 2.0
    drawn = draw_gradients([w], 2)
    train(optimizer, [w], drawn)
    _close(w, before - 2.0 * drawn[0][0] - 0.2 * drawn[1][0])


@pytest.mark.parametrize("last", [3, None])
def test_composite(last):
    given = make_parameters((2, 2), (3,), (3,))
    twins = [torch.nn.Parameter(p.detach().clone()) for p in given]
    nested = [
        {"otype": "Adam", "learning_rate": 0.01, "n_params_to_optimize": 4},
        {"otype": "EMA", "nested": SGD, "n_params_to_optimize": 3},
        {"otype": "Novograd"} if last is None else {"otype": "Novograd", "n_params_to_optimize": last},
    ]
    optimizer = make_optimizer(given, {"otype": "Composite", "nested": nested})
    drawn = draw_gradients(given, 4)
    train(optimizer, given, drawn)
    for i, part in enumerate(nested):
        alone = {key: value for key, value in part.items() if key != "n_params_to_optimize"}
        train(make_optimizer(twins[i : i + 1], alone), twins[i : i + 1], [row[i : i + 1] for row in drawn])
        _close(given[i], twins[i])
    own = given[1].detach().clone()
    with use_averages(optimizer):
        assert torch.equal(given[0], twins[0])
        assert not torch.equal(given[1], own)


@pytest.mark.parametrize("counts", [(4, 2, None), (4, 3, 2), (4, 3, 4), (5, None, 3)])
def test_a_composite_takes_whole_parameters(counts):
    nested = [{"otype": "SGD"} if n is None else {"otype": "SGD", "n_params_to_optimize": n} for n in counts]
    with pytest.raises(ConfigError) as caught:
        make_optimizer(make_parameters((2, 2), (3,), (3,)), {"otype": "Composite", "nested": nested})
    assert "n_params_to_optimize` does not divide the parameters" in str(caught.value)
    assert "parameters  4 + 3 + 3 = 10" in str(caught.value)


def test_wrappers_compose():
    """ExponentialDecay(EMA(Lookahead(SGD))): averages are those of the slow weights."""
    (w,) = make_parameters((3, 2))
    lookahead = {"otype": "Lookahead", "n_steps": 2, "alpha": 0.5, "nested": SGD}
    config = {
        "otype": "ExponentialDecay",
        "decay_start": 2,
        "nested": {"otype": "EMA", "decay": 0.5, "nested": lookahead},
    }
    optimizer = make_optimizer([w], config)
    drawn = draw_gradients([w], 4)
    slow = fast = w.detach().clone()
    mean, weight = 0.0, 0.0
    for step, (grad,) in enumerate(drawn, 1):
        fast = fast - (0.1 if step <= 2 else 0.01) * grad
        if step % 2 == 0:
            slow = fast = 0.5 * slow + 0.5 * fast
        mean, weight = 0.5 * mean + slow, 0.5 * weight + 1
    train(optimizer, [w], drawn)
    _close(w, fast)
    with use_averages(optimizer):
        _close(w, mean / weight)


def test_torch_takes_them_for_optimizers():
    (w,) = make_parameters((3, 2))
    optimizer = make_optimizer([w], {"otype": "EMA", "nested": SGD})
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    w.grad = torch.ones_like(w)
    optimizer.step()
    scheduler.step()
    assert optimizer.nested.param_groups[0]["lr"] == 0.05
    optimizer.zero_grad()
    assert w.grad is None
    with pytest.raises(ArgumentError, match="EMA cannot take further parameters"):
        optimizer.add_param_group({"params": make_parameters((2,))})


@pytest.mark.parametrize("otype", ["Novograd", "Shampoo", "Lookahead"])
def test_without_the_library_the_way_to_it_is_named(otype, monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(ConfigError) as caught:
        make_optimizer(make_parameters((2, 2)), {"otype": otype})
    assert f"`optimizer`: {otype} needs pytorch-optimizer, which is not installed" in str(caught.value)
    assert f"Run {install_command('nn')}." in str(caught.value)


@pytest.mark.costly
def test_the_library_is_loaded_only_when_it_is_named():
    code = (
        "import sys, torch\n"
        "from tinsmith.nn.optimizers import make_optimizer\n"
        "w = torch.nn.Parameter(torch.ones(2, 2))\n"
        "make_optimizer([w], {'otype': 'EMA'})\n"
        "assert 'pytorch_optimizer' not in sys.modules\n"
        "make_optimizer([w], {'otype': 'Novograd'})\n"
        "assert 'pytorch_optimizer' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_old_names_of_use_averages_warn():
    (w,) = make_parameters((3, 2))
    optimizer = make_optimizer([w], {"otype": "EMA", "decay": 0.5, "nested": {"otype": "SGD"}})
    with pytest.warns(DeprecationWarning, match="use_averages"), nn.averaged(optimizer):
        pass
    with pytest.warns(DeprecationWarning, match="use_averages"), optimizer.averaged():
        pass
