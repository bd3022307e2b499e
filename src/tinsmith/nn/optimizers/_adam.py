"""Adam: torch's, with epsilon where tiny-cuda-nn has it in the formula, and one with the options that torch's lacks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from ..._cache import cache_results
from .._precision import compute_dtype
from ._gradients import evaluate_closure, gradient


class Adam(torch.optim.Adam):
    """A fused torch.optim.Adam that adds epsilon before the second moment is debiased (Kingma and Ba 2015, section 2).

    With g the gradient, and m and v its debiased moments, after t steps:

        w := w - lr * m / (sqrt(v) + epsilon / sqrt(1 - beta2**t))

    The parameters of a group are stepped together: t is counted per group.

    Args:
        groups: groups of parameters, each with its `lr` and `weight_decay` (added to the gradient).
        betas: the decay rates of the two moments.
        epsilon: see the formula.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], betas: tuple[float, float], epsilon: float) -> None:
        epsilon = epsilon or torch.finfo(torch.float32).tiny  # avoids 0 / 0 for entries without any gradient so far
        super().__init__(groups, betas=betas, eps=epsilon, fused=True)
        for group in self.param_groups:
            group["epsilon"], group["step"] = epsilon, 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Run one optimization step, like `torch.optim.Adam.step`."""
        for group in self.param_groups:
            group["step"] += 1
            group["eps"] = group["epsilon"] / math.sqrt(1 - group["betas"][1] ** group["step"])
        return super().step(closure)


_CHUNK = 1 << 17


@dataclasses.dataclass(frozen=True)
class Extras:
    """The options of Adam that torch's lacks, with tiny-cuda-nn's names. True if any differs from its default."""

    relative_decay: float = 0.0
    absolute_decay: float = 0.0
    adabound: bool = False
    clipping_magnitude: float = 0.0
    gradient_clipping_magnitude: float = 0.0
    skip_zero_grad: bool = False

    def __bool__(self) -> bool:
        return self != Extras()


class EntrywiseAdam(torch.optim.Optimizer):
    """Adam by tiny-cuda-nn's formula, with its additional options.

    For each entry, with t the number of steps that the entry has had:

        g := clip(gradient + l2_reg * w, gradient_clipping_magnitude)
        m := beta1 * m + (1 - beta1) * g
        v := beta2 * v + (1 - beta2) * g**2
        r  = lr * sqrt(1 - beta2**t) / (1 - beta1**t)
        w := clip(w - r * (relative_decay * w + absolute_decay * sign(w))
                    - clamp(r / (sqrt(v) + epsilon), bounds) * m, clipping_magnitude)

    With `adabound`, the bounds are those of AdaBound, 0.1 -+ 0.1 / ((1 - beta2) * T) in step T (the lower bound
    counts steps from 1). A magnitude of 0 clips nothing.

    With `skip_zero_grad` an entry whose gradient is 0 is skipped, and its moments and its t do not change, since a
    batch uses only a small part of a hash table. torch.optim.SparseAdam skips too, but counts t for the whole tensor,
    so that the first update of an entry that is first used late would be three times too large.

    Args:
        groups: groups of parameters, each with its `lr` and `weight_decay` (the l2_reg of the formula).
        betas: the decay rates of the two moments.
        epsilon: see the formula.
        extras: the additional options.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], betas: tuple[float, float], epsilon: float, extras: Extras
    ) -> None:
        super().__init__(groups, {"betas": betas, "eps": epsilon, "step": 0})
        self.extras = extras

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "extras": self.extras}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Run one optimization step. A closure, if given, is called first, and its value is returned."""
        loss = evaluate_closure(closure)
        for group in self.param_groups:
            group["step"] += 1
            for parameter in group["params"]:
                grad = gradient(parameter)
                if grad is not None:
                    self._update(parameter, grad, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned, with moments in the dtype of the computation.

        torch's own method would convert them to the parameter's dtype, which may be half precision.
        """
        super().load_state_dict(state_dict)
        for i, parameter in enumerate(p for group in self.param_groups for p in group["params"]):
            for name, saved in state_dict["state"].get(i, {}).items():
                dtype = saved.dtype if name == "steps" else compute_dtype(parameter.dtype)
                self.state[parameter][name] = saved.to(parameter.device, dtype, copy=True)

    def _update(self, parameter: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            shape = parameter.shape if self.extras.skip_zero_grad else ()
            # Float32 for half precision, in which the square of a small gradient, and epsilon, would be 0.
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=compute_dtype(parameter.dtype))
            state["steps"] = torch.zeros(shape, dtype=torch.int32, device=parameter.device)
        skips, steps = self.extras.skip_zero_grad, state["steps"]
        weights = parameter.to(compute_dtype(parameter.dtype))  # the parameter itself, unless it has half precision
        kept = [weights, state["exp_avg"], state["exp_avg_sq"], *([steps] if skips else [])]
        if not skips:
            steps += 1
        flat = [tensor.reshape(-1) for tensor in kept]
        for g, w, m, v, *counts in _split_chunks([grad.reshape(-1).to(weights.dtype), *flat]):
            met = g != 0 if skips else None
            rate = _compute_rates(steps if met is None else counts[0].add_(met), group, w.dtype)
            self._update_entries(group, rate, g, w, m, v, met)
        for tensor, entries in zip(kept, flat, strict=True):
            if not tensor.is_contiguous():  # then `reshape` made a copy
                tensor.copy_(entries.view(tensor.shape))
        if weights is not parameter:
            parameter.copy_(weights)

    def _update_entries(
        self,
        group: dict[str, Any],
        rate: torch.Tensor,
        g: torch.Tensor,
        w: torch.Tensor,
        m: torch.Tensor,
        v: torch.Tensor,
        met: torch.Tensor | None = None,
    ) -> None:
        """Update weights and moments w, m and v by the class's formula, in place; only the entries in `met`, if given.

        Args:
            group: the parameter group with the options.
            rate: r of the formula, for each entry or one for all.
            g: the gradients.
            w: the weights.
            m: the first moments.
            v: the second moments.
            met: a mask of the entries that have a gradient.
        """
        (beta1, beta2), extras = group["betas"], self.extras
        share = 1.0 if met is None else met.to(w.dtype)
        g = g.add(w, alpha=group["weight_decay"]) if group["weight_decay"] else g
        if extras.gradient_clipping_magnitude:
            g = g.clamp(-extras.gradient_clipping_magnitude, extras.gradient_clipping_magnitude)
        m.lerp_(g, (1 - beta1) * share)
        v.lerp_(g * g, (1 - beta2) * share)
        epsilon = group["eps"] or torch.finfo(v.dtype).tiny  # avoids 0 / 0
        change = self._clamp_rate(v.sqrt().add_(epsilon).reciprocal_().mul_(rate), beta2, group["step"]).mul_(m)
        if extras.relative_decay or extras.absolute_decay:
            change += rate * (extras.relative_decay * w + extras.absolute_decay * w.sign())
        if extras.clipping_magnitude:
            clipped = (w - change).clamp_(-extras.clipping_magnitude, extras.clipping_magnitude)
            w.copy_(clipped if met is None else torch.where(met, clipped, w))
        else:
            w -= change.mul_(share)

    def _clamp_rate(self, rate: torch.Tensor, beta2: float, step: int) -> torch.Tensor:
        if not self.extras.adabound:
            return rate
        return rate.clamp_(0.1 - 0.1 / ((1 - beta2) * step + 1), 0.1 + 0.1 / ((1 - beta2) * step))


def _compute_rates(steps: torch.Tensor, group: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
    """Return lr * sqrt(1 - beta2**t) / (1 - beta1**t) for each t in `steps`, from a table.

    Computing the powers for each entry would cost more than the rest of the step.
    """
    size = 1 << int(group["step"]).bit_length()
    beta1, beta2 = group["betas"]
    factors = _factors(beta1, beta2, size, dtype, steps.device)
    return factors.index_select(0, steps.reshape(-1)).reshape(steps.shape).mul_(group["lr"])


@cache_results("factors of Adam", 16)
def _factors(beta1: float, beta2: float, size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    values = [math.sqrt(1 - beta2**t) / (1 - beta1**t) for t in range(1, size)]
    return torch.tensor([0.0, *values], dtype=dtype, device=device)


def _split_chunks(tensors: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield corresponding chunks of the tensors, on the CPU small enough to stay in its cache; elsewhere one chunk."""
    size = _CHUNK if tensors[0].device.type == "cpu" else max(1, tensors[0].numel())
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)
