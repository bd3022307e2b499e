"""Updates of a few rows: each row as if it had an optimizer of its own, the others untouched."""

from __future__ import annotations

import io
import pickle

import pytest
import torch

from support.optimizers import draw_gradients, make_parameters, train
from tinsmith import ArgumentError, CheckpointError, ConfigError, ShapeError
from tinsmith.nn.optimizers import RowOptimizer, make_optimizer, use_averages

SHAPES = ((5, 3, 2), (5, 4))
ROWS = [[0, 2], None, [2], [4, 0, 1], [True, False, False, False, True], [], None, [3], None]
EXTRAS = {"adabound": False, "relative_decay": 0.1, "gradient_clipping_magnitude": 0.7}
OPTIMIZERS = {
    "Adam": {"otype": "Adam", "learning_rate": 0.1, "epsilon": 0.01},
    "Adam with extras": {"otype": "Adam", "learning_rate": 0.1, **EXTRAS},
    "SGD": {"otype": "SGD", "learning_rate": 0.1},
    "Composite": {
        "otype": "Composite",
        "nested": [{"otype": "SGD", "n_params_to_optimize": 6}, {"otype": "Adam", "n_params_to_optimize": 4}],
    },
    "wrapped": {
        "otype": "EMA",
        "decay": 0.7,
        "nested": {
            "otype": "ExponentialDecay",
            "decay_base": 0.5,
            "decay_start": 1,
            "decay_interval": 2,
            "nested": {"otype": "Adam", "learning_rate": 0.1},
        },
    },
    "RMSprop": lambda given: torch.optim.RMSprop(given, lr=0.1, momentum=0.9),
    "SGD with momentum": lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9, nesterov=True),
    "AdamW": lambda given: torch.optim.AdamW(given, lr=0.1, amsgrad=True),
}
TABLE = {"otype": "Adam", "learning_rate": 0.1}  # of what is no matrix: entries without gradient are passed over


def _indices(rows: list | None) -> list[int]:
    if rows is None:
        return list(range(5))
    return [i for i, taken in enumerate(rows) if taken] if rows and rows[0] is True else rows


def _alone(given: list[torch.nn.Parameter], config: object, drawn: list, row: int, matrix: bool) -> list[torch.Tensor]:
    """Train a row by an optimizer of its own on the steps that took it; return its weights and those for inference."""
    own = [torch.nn.Parameter(p.detach()[row : row + 1].clone()) for p in given]
    groups = [{"params": [p], "matrix": matrix} for p in own]
    optimizer = config(own) if callable(config) else make_optimizer(groups, config)
    grads = [
        [one[row : row + 1] for one in step] for step, rows in zip(drawn, ROWS, strict=True) if row in _indices(rows)
    ]
    train(optimizer, own, grads)
    trained = [p.detach()[0].clone() for p in own]
    with use_averages(optimizer):
        return trained + [p.detach()[0].clone() for p in own]


def _step(optimizer: RowOptimizer, given: list, rows: list | None, grads: list[torch.Tensor], compact: bool) -> None:
    if compact:
        optimizer.step(rows, [one[_indices(rows)] for one in grads])
        return
    for p, one in zip(given, grads, strict=True):
        p.grad = one.clone()
    optimizer.step(torch.tensor(rows) if rows else rows)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("name", [*OPTIMIZERS, "table"])
def test_each_row_is_trained_as_if_alone(name, compact):
    config = TABLE if name == "table" else OPTIMIZERS[name]
    given = make_parameters(*SHAPES)
    drawn = draw_gradients(given, len(ROWS), zeros=0.3)
    matrix = name != "table"
    expected = [_alone(given, config, drawn, row, matrix) for row in range(5)]
    optimizer = RowOptimizer([{"params": given, "matrix": matrix}], config)
    for rows, grads in zip(ROWS, drawn, strict=True):
        _step(optimizer, given, rows, grads, compact)
    assert optimizer.counts.tolist() == [sum(row in _indices(rows) for rows in ROWS) for row in range(5)]
    weights = [p.detach().clone() for p in given]
    with use_averages(optimizer):
        weights += [p.detach().clone() for p in given]
    for row in range(5):
        for p, q in zip(weights, expected[row], strict=True):
            torch.testing.assert_close(p[row], q, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(p, own) for p, own in zip(given, weights, strict=False))


def _tensors(state: dict) -> list[torch.Tensor]:
    return [v for part in state["parts"] for one in part["state"].values() for v in one.values() if v.ndim] + (
        state["averages"] or []
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_other_rows_and_their_state_stay_bit_for_bit(name):
    given = make_parameters(*SHAPES, dtype=torch.float32)
    optimizer = RowOptimizer(given, OPTIMIZERS[name])
    drawn = draw_gradients(given, 3)
    _step(optimizer, given, None, drawn[0], compact=False)
    _step(optimizer, given, [0, 1], drawn[1], compact=False)
    before = [p.detach().clone() for p in given] + [v.clone() for v in _tensors(optimizer.state_dict())]
    _step(optimizer, given, [1, 3], drawn[2], compact=False)
    after = [p.detach() for p in given] + _tensors(optimizer.state_dict())
    assert len(before) == len(after)
    for was, now in zip(before, after, strict=True):
        assert torch.equal(was[[0, 2, 4]], now[[0, 2, 4]])
        assert not torch.equal(was[[1, 3]], now[[1, 3]])


def test_a_row_trained_ten_times_has_the_bias_correction_of_ten():
    """Its update is that of a fresh Adam's eleventh step, whatever the thousand steps of the others."""
    (given,) = make_parameters((2, 3, 3))
    (fresh,) = make_parameters((2, 3, 3))
    optimizer = RowOptimizer([given], {"learning_rate": 0.1})
    drawn = draw_gradients([given], 11)
    for grads in draw_gradients([given], 50, seed=5):
        _step(optimizer, [given], [0], grads, compact=False)
    for grads in drawn:
        _step(optimizer, [given], [1], grads, compact=False)
    train(make_optimizer([fresh], {"learning_rate": 0.1}), [fresh], drawn)
    assert torch.equal(given[1], fresh[1])
    assert optimizer.counts.tolist() == [50, 11]


def test_rows_with_equal_step_counts_equal_the_plain_optimizer(monkeypatch):
    given, twin = make_parameters(*SHAPES, dtype=torch.float32), make_parameters(*SHAPES, dtype=torch.float32)
    drawn = draw_gradients(given, 4)
    optimizer = RowOptimizer(given)
    monkeypatch.setattr(optimizer, "_step_some", None)  # would gather
    for grads in drawn[:3]:
        _step(optimizer, given, None, grads, compact=False)
    _step(optimizer, given, [4, 2, 0, 1, 3], drawn[3], compact=False)
    train(make_optimizer(twin), twin, drawn)
    for p, q in zip(given, twin, strict=True):
        assert torch.equal(p, q)
    assert optimizer.param_groups[0]["fused"] is True


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_with_equal_step_counts_are_updated_together(name):
    given, twin = make_parameters(*SHAPES), make_parameters(*SHAPES)
    first, second, third = draw_gradients(given, 3)
    optimizer = RowOptimizer(given, OPTIMIZERS[name])
    _step(optimizer, given, None, first, compact=False)
    for rows in ([3, 1], [0], [2, 4]):
        _step(optimizer, given, rows, second, compact=False)
    resumed = RowOptimizer(given, OPTIMIZERS[name])
    resumed.load_state_dict(optimizer.state_dict())
    _step(resumed, given, None, third, compact=False)
    straight = RowOptimizer(twin, OPTIMIZERS[name])
    for grads in (first, second, third):
        _step(straight, twin, None, grads, compact=False)
    for p, q in zip(given, twin, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


def test_learning_rates_hold_for_all_steps():
    (given,) = make_parameters((4, 2, 2))
    before = given.detach().clone()
    optimizer = RowOptimizer([given], {"otype": "SGD", "l2_reg": 0})
    optimizer.param_groups[0]["lr"] = 2.0
    given.grad = torch.ones_like(given)
    optimizer.step([1])
    torch.testing.assert_close(before[1] - given.detach()[1], torch.full((2, 2), 2.0, dtype=torch.float64))
    optimizer.zero_grad()
    assert given.grad is None


def test_a_parameter_without_gradient_is_left_alone():
    given = make_parameters(*SHAPES)
    before = given[1].detach().clone()
    optimizer = RowOptimizer(given)
    given[0].grad = torch.ones_like(given[0])
    optimizer.step([0, 1])
    optimizer.step([2], [None, None])
    assert torch.equal(given[1], before)


@pytest.mark.parametrize("at", [0, 1, 4, 7])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_run_goes_on_bit_for_bit(name, at):
    given = make_parameters(*SHAPES, dtype=torch.float32)
    drawn = draw_gradients(given, len(ROWS))
    straight = RowOptimizer(given, OPTIMIZERS[name])
    for rows, grads in zip(ROWS[:at], drawn[:at], strict=True):
        _step(straight, given, rows, grads, compact=False)
    buffer = io.BytesIO()
    torch.save(straight.state_dict(), buffer)
    buffer.seek(0)
    again = [torch.nn.Parameter(p.detach().clone()) for p in given]
    resumed = RowOptimizer(again, OPTIMIZERS[name])
    resumed.load_state_dict(torch.load(buffer, weights_only=True))
    for rows, grads in zip(ROWS[at:], drawn[at:], strict=True):
        _step(straight, given, rows, grads, compact=False)
        _step(resumed, again, rows, grads, compact=False)
    for p, q in zip(given, again, strict=True):
        assert torch.equal(p, q)
    assert torch.equal(straight.counts, resumed.counts)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda o: o.step([5]), ShapeError, ["A row index is out of range", "0 to 4", "5 to 5"]),
        (lambda o: o.step([-1]), ShapeError, ["A row index is out of range"]),
        (lambda o: o.step([1, 2, 1]), ArgumentError, ["named more than once", "Name each row once"]),
        (lambda o: o.step(torch.ones(4, dtype=torch.bool)), ShapeError, ["mask of rows", "(5,)", "(4,)"]),
        (lambda o: o.step([[1, 2]]), ShapeError, ["Row indices must have one dim", "(1, 2)", "NetworkArray.rows"]),
        (lambda o: o.step([1], [None]), ArgumentError, ["not as many gradients", "parameters  2", "gradients   1"]),
        (
            lambda o: o.step([1, 2], [torch.ones(5, 3, 2), None]),
            ShapeError,
            ["gradients[0] does not fit 2 rows", "(2, 3, 2)", "(5, 3, 2)"],
        ),
        (lambda o: o.step(None, [torch.ones(3, 3, 2), None]), ShapeError, ["does not fit 5 rows"]),
        (lambda o: o.load_state_dict({}), CheckpointError, ["saved by another optimizer", "no counts of rows"]),
        (
            lambda o: o.load_state_dict(RowOptimizer(make_parameters((4, 2))).state_dict()),
            CheckpointError,
            ["expected  5 rows", "got       4 rows"],
        ),
        (
            lambda o: o.load_state_dict(RowOptimizer(make_parameters(*SHAPES), {"otype": "EMA"}).state_dict()),
            CheckpointError,
            ["expected  no EMA", "got       an EMA"],
        ),
    ],
)
def test_invalid_rows_are_refused(call, error, words):
    given = make_parameters(*SHAPES)
    optimizer = RowOptimizer(given)
    before = [p.detach().clone() for p in given]
    with pytest.raises(error) as caught:
        call(optimizer)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)
    assert all(torch.equal(p, was) for p, was in zip(given, before, strict=True))
    assert not optimizer.counts.any()


@pytest.mark.parametrize(
    ("shapes", "config", "error", "words"),
    [
        (((4, 2), (5, 2)), None, ShapeError, ["differ in their number of rows", "params[1]  (5, 2)"]),
        (SHAPES, {"otype": "Novograd"}, ConfigError, ["`optimizer`: Novograd cannot update single rows", "Adam, SGD"]),
        (
            SHAPES,
            {"otype": "Composite", "nested": [{"otype": "SGD", "n_params_to_optimize": 6}, {"otype": "EMA"}]},
            ConfigError,
            ["`optimizer.nested[1]`: EMA cannot update single rows"],
        ),
        (
            SHAPES,
            {"otype": "EMA", "nested": {"otype": "EMA"}},
            ConfigError,
            ["`optimizer`: EMA of an EMA, or EMA in full precision, cannot update single rows"],
        ),
        (
            SHAPES,
            {"otype": "ExponentialDecay", "nested": {"otype": "Lookahead"}},
            ConfigError,
            ["`optimizer.nested`: Lookahead cannot update single rows", "in ExponentialDecay and EMA"],
        ),
        (SHAPES, lambda given: make_optimizer(given, {"otype": "EMA"}), ConfigError, ["EMA cannot update single rows"]),
        (SHAPES, torch.optim.Adafactor, ConfigError, ["Adafactor cannot update single rows", "depends on the others"]),
        (SHAPES, torch.optim.LBFGS, ConfigError, ["LBFGS cannot update single rows"]),
    ],
)
def test_unsupported_optimizers_are_refused(shapes, config, error, words):
    with pytest.raises(error) as caught:
        RowOptimizer(make_parameters(*shapes), config)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


def test_an_optimizer_with_one_number_for_all_rows_is_found_out():
    given = make_parameters(*SHAPES)
    optimizer = RowOptimizer(given, lambda params: torch.optim.NAdam(params, lr=0.1))
    given[0].grad = torch.ones_like(given[0])
    with pytest.raises(ConfigError, match="NAdam cannot update single rows") as caught:
        optimizer.step([1])
    assert "its state `mu_product` is one number for all rows" in str(caught.value)


def test_rows_that_are_no_whole_numbers():
    weights = torch.nn.Parameter(torch.zeros(4, 3))
    optimizer = RowOptimizer([weights], {"otype": "SGD"})
    with pytest.raises(ArgumentError, match="float32"):
        optimizer.step(rows=[0.5], gradients=[torch.ones(1, 3)])


def test_rows_without_steps_are_averaged_to_what_they_are_now():
    """Not to what they were when the optimizer was made: weights are loaded after that."""
    (given,) = make_parameters((5, 3, 2))
    optimizer = RowOptimizer([given], {"otype": "EMA", "decay": 0.5})
    for steps in (0, 1):
        with torch.no_grad():
            given.add_(1.0)
        if steps:
            optimizer.step([1, 3], [torch.ones(2, 3, 2, dtype=given.dtype)])
        own = given.detach().clone()
        with use_averages(optimizer):
            assert torch.equal(given, own)
        assert torch.equal(given, own)


def test_a_state_without_averages_is_refused_where_there_are_some():
    given = make_parameters(*SHAPES)
    optimizer = RowOptimizer(given, {"otype": "EMA"})
    with pytest.raises(CheckpointError, match="expected  an EMA\n  got       no EMA"):
        optimizer.load_state_dict(RowOptimizer(given).state_dict())


@pytest.mark.parametrize("steps", [0, 1])
def test_averages_go_where_the_parameters_go(steps):
    model = torch.nn.Module()
    model.weights, _ = make_parameters(*SHAPES, dtype=torch.float32)
    optimizer = RowOptimizer(model, {"otype": "EMA", "nested": {"otype": "SGD"}})
    for _ in range(steps):
        optimizer.step([2], [torch.ones(1, 3, 2)])
    model.double()
    optimizer.step([1, 3], [torch.ones(2, 3, 2, dtype=torch.float64)])
    with use_averages(optimizer):
        assert model.weights.dtype == torch.float64
    assert [average.dtype for average in optimizer.state_dict()["averages"]] == [torch.float64]


@pytest.mark.parametrize("name", ["Adam", "Composite", "wrapped"])
def test_pickled_with_its_parameters_an_optimizer_goes_on(name):
    given = make_parameters(*SHAPES)
    optimizer = RowOptimizer(given, OPTIMIZERS[name])
    drawn = draw_gradients(given, 4)
    for rows, grads in zip(([0, 2], None), drawn[:2], strict=True):
        _step(optimizer, given, rows, grads, compact=False)
    again, twin = pickle.loads(pickle.dumps((optimizer, given)))[::-1]
    for rows, grads in zip(([2, 4], None), drawn[2:], strict=True):
        _step(optimizer, given, rows, grads, compact=True)
        _step(twin, again, rows, grads, compact=True)
    for p, q in zip(given, again, strict=True):
        assert torch.equal(p, q)
