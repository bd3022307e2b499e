"""Sums and products along the samples of each ray, in plain torch, a ray at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def inclusive_sum(values: Tensor, rays: Tensor) -> Tensor:
    """Sums of the values of a ray's samples up to each, itself included. See `exclusive_prod`."""
    return _along(values, rays, lambda of: of.cumsum(0))


def exclusive_sum(values: Tensor, rays: Tensor) -> Tensor:
    """Sums of the values of a ray's samples before each. See `exclusive_prod`."""
    return _along(values, rays, lambda of: torch.cat([torch.zeros_like(of[:1]), of[:-1]]).cumsum(0))


def inclusive_prod(values: Tensor, rays: Tensor) -> Tensor:
    """Products of the values of a ray's samples up to each, itself included. See `exclusive_prod`."""
    return _along(values, rays, lambda of: of.cumprod(0))


def exclusive_prod(values: Tensor, rays: Tensor) -> Tensor:
    """Products of the values of a ray's samples before each.

    Args:
        values: (s) or (s, c).
        rays: (n, 2), integers: where a ray's samples start, and how many it has.

    Returns:
        As the values; 0 for samples of no ray. Differentiable in the values.

    Example:
        >>> exclusive_prod(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([1., 2., 1.])
    """
    return _along(values, rays, lambda of: torch.cat([torch.ones_like(of[:1]), of[:-1]]).cumprod(0))


def segment_sum(values: Tensor, rays: Tensor) -> Tensor:
    """Sums of the values of each ray's samples: (n) or (n, c).

    Example:
        >>> segment_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1], [3, 0]]))
        tensor([5., 4., 0.])
    """
    return torch.stack([values[start : start + count].sum(0) for start, count in rays.tolist()])


def accumulate(weights: Tensor, values: Tensor, rays: Tensor) -> Tensor:
    """Sums of weights (s) times values (s, c) over each ray's samples: (n, c).

    Example:
        >>> accumulate(torch.tensor([0.5, 2.0]), torch.tensor([[2.0], [3.0]]), torch.tensor([[0, 2]]))
        tensor([[7.]])
    """
    return segment_sum(weights[:, None] * values, rays)


def _along(values: Tensor, rays: Tensor, scan: Callable[[Tensor], Tensor]) -> Tensor:
    y = torch.zeros_like(values)
    for start, count in rays.tolist():
        y = torch.cat([y[:start], scan(values[start : start + count]), y[start + count :]])
    return y
