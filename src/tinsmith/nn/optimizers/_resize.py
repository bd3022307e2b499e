"""Parameters that gain and lose rows: the optimizer and its state are moved to the new parameter.

Splatting adds and removes Gaussians during training. torch's optimizers identify parameters by object, so a parameter
of another size has to replace the old one in the groups, and its moments the old moments.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..._errors import ArgumentError, refusal
from ._exponential_decay import ExponentialDecay
from ._wrapper import Wrapper

ChangeRows = Callable[[torch.Tensor], torch.Tensor]
"""From a state with one row per row of the old parameter to one with a row per row of the new parameter."""

_REMEDY = "Use torch.optim.Adam, `SelectiveAdam`, or `make_optimizer` with Adam or SGD (and ExponentialDecay)."


def require_resizable(optimizer: torch.optim.Optimizer) -> None:
    """Raises ArgumentError for an optimizer that keeps weights or counts outside of its parameters' state."""
    is_plain = isinstance(optimizer, torch.optim.Optimizer) and not isinstance(optimizer, Wrapper)
    if is_plain:
        return
    if not isinstance(optimizer, ExponentialDecay):  # a RowOptimizer is not a torch.optim.Optimizer
        headline = f"{type(optimizer).__name__} cannot follow a parameter whose rows come and go"
        raise ArgumentError(refusal(headline, [("optimizer", type(optimizer).__name__)], _REMEDY))
    require_resizable(optimizer.nested)


@torch.no_grad()
def replace_parameter(
    optimizer: torch.optim.Optimizer, old: torch.Tensor, new: torch.Tensor, change: ChangeRows
) -> None:
    """Put `new` in place of `old`, in the groups and in the state of an optimizer.

    State that has a row for each row of `old` (moments, counts of steps by row) goes through `change`; state without
    axes (a count of steps) stays as it is.

    Args:
        optimizer: torch's own, or one of ours that keeps all of its state by parameter.
        old: (rows, ...), a parameter of the optimizer.
        new: (other rows, ...), not one of its parameters yet.
        change: makes the new state of the old.

    Raises:
        ArgumentError: `old` is not a parameter of the optimizer, or there is state that is neither by row nor
            without axes. The optimizer is then as it was.
    """
    require_resizable(optimizer)
    places = [
        (group, index)
        for group in optimizer.param_groups
        for index, parameter in enumerate(group["params"])
        if parameter is old
    ]
    if not places:
        rows = [("parameter", f"of shape {tuple(old.shape)}"), ("optimizer", type(optimizer).__name__)]
        raise ArgumentError(refusal("the parameter is not one that the optimizer steps", rows))
    changed = {key: _resize_state(optimizer, key, value, old, change) for key, value in _state(optimizer, old).items()}
    for group, index in places:
        group["params"][index] = new
    if optimizer.state.pop(old, None) is not None:
        optimizer.state[new] = changed


def _state(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict[str, object]:
    return optimizer.state.get(parameter, {})  # a defaultdict: `[]` would make an entry


def _resize_state(
    optimizer: torch.optim.Optimizer, key: str, value: object, old: torch.Tensor, change: ChangeRows
) -> object:
    if not isinstance(value, torch.Tensor) or value.ndim == 0:
        if value is None or isinstance(value, (torch.Tensor, int, float, bool)):
            return value
    elif len(value) == len(old):
        return change(value)
    actual = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
    rows = [
        ("optimizer", type(optimizer).__name__),
        (f"state {key!r}", str(actual), f"expected {len(old)} rows, as the parameter has"),
    ]
    raise ArgumentError(refusal("the optimizer has state that cannot be changed by rows", rows, _REMEDY))
