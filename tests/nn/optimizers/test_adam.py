"""Adam against the formula written out for one number, with each extra and all of them."""

from __future__ import annotations

import pytest
import torch

from support.optimizers import compute_adam, draw_gradients, make_parameters, train
from tinsmith import ConfigError
from tinsmith.nn.config import resolve_section
from tinsmith.nn.optimizers import make_optimizer

FAST = {"learning_rate": 0.1, "epsilon": 0.02, "l2_reg": 0.05, "beta2": 0.9}  # large, so that each one tells
CASES = [
    {},
    {"skip_zero_grad_non_matrix_params": False},
    {"non_matrix_learning_rate_factor": 0.3, "non_matrix_l2_reg": 0.2},
    {"relative_decay": 0.2},
    {"absolute_decay": 0.3},
    {"adabound": True},
    {"adabound": True, "learning_rate": 0.001},
    {"clipping_magnitude": 0.7},
    {"gradient_clipping_magnitude": 0.4},
    {"optimize_matrix_params": False},
    {"optimize_non_matrix_params": False},
    {
        "relative_decay": 0.2,
        "absolute_decay": 0.1,
        "adabound": True,
        "clipping_magnitude": 1.1,
        "gradient_clipping_magnitude": 0.9,
        "non_matrix_learning_rate_factor": 2.0,
        "non_matrix_l2_reg": 0.1,
    },
]


def _by_hand(before: torch.Tensor, grads: list[torch.Tensor], matrix: bool, options: dict) -> torch.Tensor:
    if not options["optimize_matrix_params" if matrix else "optimize_non_matrix_params"]:
        return before
    flat = [one.flatten().tolist() for one in grads]
    weights = [
        compute_adam(w, [one[i] for one in flat], matrix, **options) for i, w in enumerate(before.flatten().tolist())
    ]
    return torch.tensor(weights, dtype=before.dtype).reshape(before.shape)


@pytest.mark.parametrize("zeros", [0.0, 0.5])
@pytest.mark.parametrize("case", CASES)
def test_adam_is_the_formula(case, zeros):
    matrix, table = given = make_parameters((3, 4), (7,))
    config = {**FAST, **case}
    options = resolve_section("optimizer", config).options
    drawn = draw_gradients(given, 6, zeros=zeros)
    before = [p.detach().clone() for p in given]
    train(make_optimizer(given, config), given, drawn)
    for i, (p, is_matrix) in enumerate([(matrix, True), (table, False)]):
        expected = _by_hand(before[i], [row[i] for row in drawn], is_matrix, options)
        torch.testing.assert_close(p.detach(), expected, rtol=1e-11, atol=1e-11)


def test_an_entry_without_gradient_keeps_its_weight_and_state():
    """What a hash table needs: most of its entries are met by no batch."""
    (table,) = make_parameters((5,))
    before = table.detach().clone()
    optimizer = make_optimizer([table], {"learning_rate": 0.1})
    grad = torch.tensor([0.0, 1.0, 0.0, -1.0, 0.0], dtype=torch.float64)
    train(optimizer, [table], [[grad]] * 3)
    assert torch.equal(table[[0, 2, 4]], before[[0, 2, 4]])
    assert not torch.equal(table[[1, 3]], before[[1, 3]])
    assert optimizer.state[table]["steps"].tolist() == [0, 3, 0, 3, 0]


def test_a_table_may_have_any_memory_layout():
    (wide,) = make_parameters((4, 3))
    (turned,) = (torch.nn.Parameter(wide.detach().t().contiguous().t()),)
    assert not turned.is_contiguous()
    drawn = draw_gradients([wide], 4, zeros=0.5)
    for p in (wide, turned):
        train(make_optimizer([{"params": p, "matrix": False}], {"learning_rate": 0.1}), [p], drawn)
    assert torch.equal(wide, turned)


def test_parameters_that_are_no_matrices_use_the_entrywise_optimizer():
    def _entrywise(params: object) -> bool:
        return type(make_optimizer(params)).__name__ == "EntrywiseAdam"

    (wide,) = make_parameters((4, 2))
    (flat,) = make_parameters((8,))
    assert not _entrywise([wide])
    assert _entrywise([flat])
    assert _entrywise([{"params": [wide], "matrix": False}])
    assert not _entrywise([{"params": flat, "matrix": True}])

    class Table(torch.nn.Module):
        holds_matrices = False

        def __init__(self) -> None:
            super().__init__()
            self.entries = wide

    assert _entrywise(Table())
    assert not _entrywise(torch.nn.Linear(2, 2, bias=False))


def test_matrices_are_updated_by_torchs_own_adam_fused():
    (wide,) = make_parameters((4, 2))
    optimizer = make_optimizer([wide])
    assert isinstance(optimizer, torch.optim.Adam)
    assert optimizer.param_groups[0]["fused"] is True


def test_half_precision_counts_steps_exactly_over_a_checkpoint():
    (table,) = make_parameters((3,), dtype=torch.float16)
    optimizer = make_optimizer([table])
    train(optimizer, [table], draw_gradients([table], 1))
    saved = optimizer.state_dict()
    saved["state"][0]["steps"] += 4096  # 4097 is no float16
    optimizer.load_state_dict(saved)
    assert optimizer.state[table]["steps"].tolist() == [4097] * 3


def test_nothing_left_to_optimize_is_refused():
    (wide,) = make_parameters((4, 2))
    with pytest.raises(ConfigError, match="leaves Adam no parameter to optimize") as caught:
        make_optimizer([wide], {"optimize_matrix_params": False})
    assert "optimize_matrix_params      false" in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 2), (4,)])
def test_without_epsilon_what_no_gradient_met_stays(shape, dtype):
    (w,) = make_parameters(shape, dtype=dtype)
    before = w.detach().clone()
    config = {"epsilon": 0, "l2_reg": 0, "skip_zero_grad_non_matrix_params": False}
    grad = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=dtype).reshape(shape)
    train(make_optimizer([w], config), [w], [[grad]] * 3)
    assert torch.equal(w.detach().flatten()[:3], before.flatten()[:3])
    torch.testing.assert_close(w.detach().flatten()[3], before.flatten()[3] - 3e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("config", [{}, {"relative_decay": 0.1, "skip_zero_grad_non_matrix_params": False}])
def test_moments_of_half_precision_do_not_vanish(config, dtype):
    """A gradient of 1e-3 has a second moment of 1e-9 after a step, which is 0 in float16, as is epsilon."""
    config = {"learning_rate": 0.01, **config}
    grads = [torch.tensor([0.0, 1e-3, -1e-3, 1.0])] * 3
    (half,), (full,) = make_parameters((4,), dtype=dtype), make_parameters((4,), dtype=torch.float32)
    with torch.no_grad():
        full.copy_(half)
    optimizer = make_optimizer([half], config)
    train(optimizer, [half], [[one.to(dtype)] for one in grads[:2]])
    resumed = make_optimizer([half], config)
    resumed.load_state_dict(optimizer.state_dict())
    train(resumed, [half], [[grads[2].to(dtype)]])
    train(make_optimizer([full], config), [full], [[one.to(dtype).float()] for one in grads])
    torch.testing.assert_close(half.detach().float(), full.detach(), rtol=0, atol=3 * torch.finfo(dtype).eps)
