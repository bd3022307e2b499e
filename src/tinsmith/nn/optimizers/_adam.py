"""Adam: torch's, with epsilon at the place in the formula where tiny-cuda-nn has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch


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
