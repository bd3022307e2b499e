"""Adding and removing Gaussians: changes of parameters, of their optimizers' state and of a strategy's state together.

A change is described by the indices of old rows: those that are kept, with their moments, and those that new rows
are copied from, without moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor

from ..._errors import ArgumentError, ShapeError, refusal
from ...nn.optimizers import replace_parameter, require_resizable

Params = MutableMapping[str, torch.nn.Parameter] | torch.nn.ParameterDict
Optimizers = Mapping[str, torch.optim.Optimizer]
NewValues = Callable[[str, Tensor], Tensor]
"""A function from a parameter's name and some of its rows to the new values of these rows."""

REQUIRED = ("means", "scales", "quats", "opacities")


def check_params(strategy: str, params: Params, optimizers: Optimizers) -> None:
    """Raise ArgumentError or ShapeError unless a strategy can change these parameters and optimizers.

    `strategy` is its name, for the message.
    """
    missing = [name for name in REQUIRED if name not in params]
    if missing:
        rows = [("params", ", ".join(params)), ("missing", ", ".join(missing))]
        remedy = "Add the missing ones."
        raise ArgumentError(refusal(f"{strategy} needs parameters that `params` does not have", rows, remedy))
    counts = {name: len(value) if value.ndim else 0 for name, value in params.items()}
    if len(set(counts.values())) > 1:
        rows = [(name, f"[N, ...] = {tuple(params[name].shape)}") for name in params]
        remedy = "Give all of them N rows."
        raise ShapeError(refusal(f"the parameters of {strategy} have different numbers of Gaussians", rows, remedy))
    trained = {name for name, value in params.items() if value.requires_grad}
    if trained != set(optimizers):
        rows = [("params that require a gradient", ", ".join(sorted(trained)))]
        rows += [("optimizers", ", ".join(sorted(optimizers)) or "none")]
        headline = f"{strategy} needs one optimizer for each parameter that requires a gradient"
        raise ArgumentError(refusal(headline, rows, "Give both the same keys."))
    for name, optimizer in optimizers.items():
        require_resizable(optimizer)
        held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if len(optimizer.param_groups) != 1 or len(held) != 1 or held[0] is not params[name]:
            rows = [("optimizer", name), ("groups", str(len(optimizer.param_groups))), ("parameters", str(len(held)))]
            remedy = f"Make it for that parameter: torch.optim.Adam([params[{name!r}]], ...)."
            raise ArgumentError(refusal(f"an optimizer of {strategy} does not step `{name}` alone", rows, remedy))


def change_rows(
    params: Params,
    optimizers: Optimizers,
    state: MutableMapping[str, Any],
    continued: Tensor,
    begun: Tensor,
    new_values: NewValues = lambda name, rows: rows,
) -> None:
    """Keep some Gaussians, with their moments, and append copies of Gaussians, without moments. Remove all others.

    Args:
        params: parameters by name, each (N, ...); replaced by new ones, without gradients.
        optimizers: one optimizer for each parameter, by the same names.
        state: the state of a strategy; its tensors with N rows get the rows of the old Gaussians.
        continued: (k), indices of the Gaussians to keep.
        begun: (b), indices of the Gaussians to copy; the copies come after the others.
        new_values: a function from the name of a parameter and its rows `begun` to the values of the copies.
    """
    count = len(params["means"])
    rows = torch.cat([continued, begun])

    def change_state(value: Tensor) -> Tensor:
        return torch.cat([value[continued], value.new_zeros(len(begun), *value.shape[1:])])

    with torch.no_grad():
        for name in list(params):
            old = params[name]
            values = torch.cat([old[continued], new_values(name, old[begun])])
            new = torch.nn.Parameter(values, requires_grad=old.requires_grad)
            if name in optimizers:
                replace_parameter(optimizers[name], old, new, change_state)
            params[name] = new
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim and len(value) == count:
                state[name] = value[rows]


def overwrite_rows(
    params: Params, optimizers: Optimizers, names: tuple[str, ...], rows: Tensor, new_values: NewValues
) -> None:
    """Overwrite the values of some Gaussians in place, and set their moments in the optimizers to 0.

    Args:
        params: parameters by name, each (N, ...).
        optimizers: one optimizer for each parameter, by the same names.
        names: the names of the parameters that change.
        rows: (k), indices of Gaussians.
        new_values: a function from the name of a parameter and its rows to the new values of the rows.
    """
    with torch.no_grad():
        for name in names:
            value = params[name]
            value[rows] = new_values(name, value[rows])
            for held in _find_row_state(optimizers.get(name), value):
                held[rows] = 0


def _find_row_state(optimizer: torch.optim.Optimizer | None, parameter: Tensor) -> list[Tensor]:
    if optimizer is None or parameter not in optimizer.state:
        return []
    values = optimizer.state[parameter].values()
    return [value for value in values if isinstance(value, Tensor) and value.ndim and len(value) == len(parameter)]


def rotate(quats: Tensor, vectors: Tensor) -> Tensor:
    """Rotate vectors (..., 3) by quaternions (..., 4), w x y z, of any length but 0."""
    w, axis = torch.nn.functional.normalize(quats, dim=-1).split([1, 3], -1)
    across = 2 * torch.linalg.cross(axis.expand_as(vectors), vectors)
    return vectors + w * across + torch.linalg.cross(axis.expand_as(vectors), across)


def draw_normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw standard normal numbers of this shape, with the dtype and device of `like`.

    They are drawn on the generator's device, which may be another one.
    """
    device = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def sample_by_weight(weights: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Draw indices with replacement, (count), with probabilities proportional to the weights.

    The cumulative distribution is inverted, since torch.multinomial takes at most 2^24 weights.
    """
    device = weights.device if generator is None else generator.device
    shares = torch.rand(count, dtype=torch.float64, device=device, generator=generator).to(weights.device)
    ends = weights.double().cumsum(0)
    return torch.searchsorted(ends, shares * ends[-1], right=True).clamp(max=len(weights) - 1)
