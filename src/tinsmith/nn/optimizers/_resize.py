"""Replacement of a parameter whose number of rows changes, in an optimizer and its state.

Splatting adds and removes Gaussians during training. torch's optimizers identify parameters by object, so the new
parameter has to replace the old one in the groups, and its moments the old moments.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..._errors import ArgumentError, refusal
from ._wrappers import ExponentialDecay, Wrapper

ChangeRows = Callable[[torch.Tensor], torch.Tensor]
"""A function from a state with one row for each row of the old parameter to that of the new parameter."""

_REMEDY = "Use torch.optim.Adam, `SelectiveAdam`, or `make_optimizer` with Adam or SGD (and ExponentialDecay)."


def require_resizable(optimizer: torch.optim.Optimizer) -> None:
    """Raise ArgumentError for an optimizer whose parameters cannot be replaced.

    Those are optimizers that keep weights or counts outside the state of a parameter.
    """
    is_plain = isinstance(optimizer, torch.optim.Optimizer) and not isinstance(optimizer, Wrapper)
    if is_plain:
        return
    if not isinstance(optimizer, ExponentialDecay):  # a RowOptimizer is not a torch.optim.Optimizer
        headline = f"{type(optimizer).__name__} does not support parameters whose number of rows changes"
        raise ArgumentError(refusal(headline, [("optimizer", type(optimizer).__name__)], _REMEDY))
    require_resizable(optimizer.nested)


@torch.no_grad()
def replace_parameter(
    optimizer: torch.optim.Optimizer, old: torch.Tensor, new: torch.Tensor, change: ChangeRows
) -> None:
    """Replace the parameter `old` by `new` in the groups and in the state of an optimizer.

    State that has a row for each row of `old` (moments, step counts of rows) is converted by `change`; 0-d state (a
    step count) is kept.

    Args:
        optimizer: an optimizer of torch, or one of this library that keeps all of its state by parameter.
        old: (rows, ...), a parameter of the optimizer.
        new: (other rows, ...), not one of its parameters yet.
        change: converts the state of `old` to that of `new`.

    Raises:
        ArgumentError: `old` is not a parameter of the optimizer, or there is state that has neither a row for each
            row of `old` nor 0 dims. The optimizer is then unchanged.
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
        remedy = "Pass a tensor of the optimizer's `param_groups`."
        raise ArgumentError(refusal("the parameter is not in the optimizer", rows, remedy))
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
