"""Optimizers stepped on gradients that are given, and Adam written out for one number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

FLOAT = torch.float64


def make_parameters(*shapes: tuple[int, ...], seed: int = 0, dtype: torch.dtype = FLOAT) -> list[torch.nn.Parameter]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=rng, dtype=dtype)) for shape in shapes]


def draw_gradients(
    given: Iterable[torch.Tensor], steps: int, seed: int = 1, zeros: float = 0.0
) -> list[list[torch.Tensor]]:
    """Draw the gradients of all parameters for each step; a share of the entries is 0."""
    rng = torch.Generator().manual_seed(seed)
    drawn = []
    for _ in range(steps):
        row = []
        for p in given:
            grad = torch.randn(p.shape, generator=rng, dtype=p.dtype)
            row.append(grad * (torch.rand(p.shape, generator=rng) >= zeros))
        drawn.append(row)
    return drawn


def train(
    optimizer: torch.optim.Optimizer, given: Sequence[torch.nn.Parameter], drawn: Iterable[Sequence[torch.Tensor]]
) -> None:
    for row in drawn:
        for p, grad in zip(given, row, strict=True):
            p.grad = grad.clone()
        optimizer.step()


def compute_adam(w: float, grads: Sequence[float], matrix: bool, **o: Any) -> float:
    """Compute a weight after these gradients, as one thread of tiny-cuda-nn's kernel does."""
    m = v = 0.0
    own = 0
    for step, g in enumerate(grads, 1):
        if not matrix and o["skip_zero_grad_non_matrix_params"] and g == 0:
            continue
        g += (o["l2_reg"] if matrix else o["non_matrix_l2_reg"]) * w
        if o["gradient_clipping_magnitude"]:
            g = math.copysign(min(abs(g), o["gradient_clipping_magnitude"]), g)
        m = o["beta1"] * m + (1 - o["beta1"]) * g
        v = o["beta2"] * v + (1 - o["beta2"]) * g * g
        rate = o["learning_rate"] * (1.0 if matrix else o["non_matrix_learning_rate_factor"])
        own += 1
        rate *= math.sqrt(1 - o["beta2"] ** own) / (1 - o["beta1"] ** own)
        low, high = 0.0, math.inf
        if o["adabound"]:
            low = 0.1 - 0.1 / ((1 - o["beta2"]) * step + 1)
            high = 0.1 + 0.1 / ((1 - o["beta2"]) * step)
        effective = min(max(rate / (math.sqrt(v) + o["epsilon"]), low), high)
        kept = (1 - o["relative_decay"] * rate) * w - math.copysign(o["absolute_decay"] * rate, w)
        w = kept - effective * m
        if o["clipping_magnitude"]:
            w = min(max(w, -o["clipping_magnitude"]), o["clipping_magnitude"])
    return w
