"""Adam with all of tiny-cuda-nn's extras, entry by entry: for what torch.optim has no Adam for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ._gradients import gradient


@dataclasses.dataclass(frozen=True)
class Extras:
    """What torch's Adam does not have, in tiny-cuda-nn's names."""

    relative_decay: float = 0.0
    absolute_decay: float = 0.0
    adabound: bool = False
    clipping_magnitude: float = 0.0
    gradient_clipping_magnitude: float = 0.0
    skip_zero_grad: bool = False

    def __bool__(self) -> bool:
        return self != Extras()


class EntrywiseAdam(torch.optim.Optimizer):
    """Adam after tiny-cuda-nn's formula, with its extras.

    For each entry, with t the number of steps that the entry has had:

        g := clip(gradient + l2_reg * w, gradient_clipping_magnitude)
        m := beta1 * m + (1 - beta1) * g
        v := beta2 * v + (1 - beta2) * g**2
        r  = lr * sqrt(1 - beta2**t) / (1 - beta1**t)
        w := clip(w - r * (relative_decay * w + absolute_decay * sign(w))
                    - clamp(r / (sqrt(v) + epsilon), bounds) * m, clipping_magnitude)

    The bounds are those of AdaBound, 0.1 -+ 0.1 / ((1 - beta2) * T) for the T-th step in all (the lower one
    counts from 1), where `adabound` is set. A magnitude of 0 clips nothing.

    With `skip_zero_grad` an entry whose gradient is 0 is passed over, its moments and its t as they are: most of
    a hash table is not met by a batch. torch.optim.SparseAdam does so too, but counts t for the whole tensor: the
    first update of an entry met late would be three times too large.

    Args:
        groups: groups of parameters, each with its `lr` and `weight_decay` (the l2_reg of the formula).
        betas: of the two moments.
        epsilon: see the formula.
        extras: see above.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], betas: tuple[float, float], epsilon: float, extras: Extras
    ) -> None:
        super().__init__(groups, {"betas": betas, "eps": epsilon, "step": 0})
        self.extras = extras

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. A closure, if given, is called first; its value is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            group["step"] += 1
            for parameter in group["params"]:
                came = gradient(parameter)
                if came is not None:
                    self._update(parameter, came, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As of any Optimizer. (torch's makes counts of steps floats of the parameter's dtype: of half precision.)"""
        super().load_state_dict(state_dict)
        for i, parameter in enumerate(p for group in self.param_groups for p in group["params"]):
            if i in state_dict["state"]:
                self.state[parameter]["steps"] = state_dict["state"][i]["steps"].to(parameter.device).clone()

    def _update(self, parameter: torch.Tensor, came: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            shape = parameter.shape if self.extras.skip_zero_grad else ()
            state["steps"] = torch.zeros(shape, dtype=torch.int32, device=parameter.device)
        names = ("exp_avg", "exp_avg_sq", "steps")
        met = came.nonzero(as_tuple=True) if self.extras.skip_zero_grad else None
        if met is None or len(met[0]) == parameter.numel():
            self._update_entries(group, parameter, came, *(state[name] for name in names))
            return
        entries = parameter[met]
        parts = [state[name][met] for name in names]
        self._update_entries(group, entries, came[met], *parts)
        parameter[met] = entries
        for name, part in zip(names, parts, strict=True):
            state[name][met] = part

    def _update_entries(self, group: dict[str, Any], w: torch.Tensor, g: torch.Tensor, *moments: torch.Tensor) -> None:
        """The formula, in place in w and the moments."""
        m, v, steps = moments
        (beta1, beta2), extras = group["betas"], self.extras
        g = g + group["weight_decay"] * w
        if extras.gradient_clipping_magnitude:
            g = g.clamp(-extras.gradient_clipping_magnitude, extras.gradient_clipping_magnitude)
        m.lerp_(g, 1 - beta1)
        v.lerp_(g * g, 1 - beta2)
        steps += 1
        t = steps.to(w.dtype)
        rate = group["lr"] * (1 - beta2**t).sqrt() / (1 - beta1**t)
        decay = rate * (extras.relative_decay * w + extras.absolute_decay * w.sign()) if self._decays() else 0.0
        w -= decay + self._bounded(rate / (v.sqrt() + group["eps"]), beta2, group["step"]) * m
        if extras.clipping_magnitude:
            w.clamp_(-extras.clipping_magnitude, extras.clipping_magnitude)

    def _decays(self) -> bool:
        return bool(self.extras.relative_decay or self.extras.absolute_decay)

    def _bounded(self, rate: torch.Tensor, beta2: float, step: int) -> torch.Tensor:
        if not self.extras.adabound:
            return rate
        return rate.clamp(0.1 - 0.1 / ((1 - beta2) * step + 1), 0.1 + 0.1 / ((1 - beta2) * step))
