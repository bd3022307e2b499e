"""References of sums and products along the samples of each ray, in plain torch, one ray at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def inclusive_sum(values: Tensor, rays: Tensor) -> Tensor:
    """Compute inclusive prefix sums of the values of each ray's samples.

    y_i = sum over j <= i of values_j. Arguments as in `exclusive_prod`.

    Example:
        >>> inclusive_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([2., 5., 4.])
    """
    return _scan_rays(values, rays, lambda of: of.cumsum(0))


def exclusive_sum(values: Tensor, rays: Tensor) -> Tensor:
    """Compute exclusive prefix sums of the values of each ray's samples.

    y_i = sum over j < i of values_j. Arguments as in `exclusive_prod`.

    Example:
        >>> exclusive_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([0., 2., 0.])
    """
    return _scan_rays(values, rays, lambda of: torch.cat([torch.zeros_like(of[:1]), of[:-1]]).cumsum(0))


def inclusive_prod(values: Tensor, rays: Tensor) -> Tensor:
    """Compute inclusive prefix products of the values of each ray's samples.

    y_i = product over j <= i of values_j. Arguments as in `exclusive_prod`.

    Example:
        >>> inclusive_prod(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([2., 6., 4.])
    """
    return _scan_rays(values, rays, lambda of: of.cumprod(0))


def exclusive_prod(values: Tensor, rays: Tensor) -> Tensor:
    """Compute exclusive prefix products of the values of each ray's samples.

    y_i = product over j < i of values_j

    Args:
        values: (s) or (s, c).
        rays: (n, 2), integers: the start and the count of each ray's samples.

    Returns:
        Shaped like the values; 0 for samples that belong to no ray. Differentiable in the values.

    Example:
        >>> exclusive_prod(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([1., 2., 1.])
    """
    return _scan_rays(values, rays, lambda of: torch.cat([torch.ones_like(of[:1]), of[:-1]]).cumprod(0))


def segment_sum(values: Tensor, rays: Tensor) -> Tensor:
    """Sum the values, (s) or (s, c), of each ray's samples: returns (n) or (n, c). Differentiable in the values.

    `rays`, (n, 2), are the start and the count of each ray's samples.

    Example:
        >>> segment_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1], [3, 0]]))
        tensor([5., 4., 0.])
    """
    return torch.stack([values[start : start + count].sum(0) for start, count in rays.tolist()])


def accumulate(weights: Tensor, values: Tensor, rays: Tensor) -> Tensor:
    """Sum weights (s) times values (s, c) over each ray's samples: returns (n, c). Differentiable in both.

    `rays`, (n, 2), are the start and the count of each ray's samples.

    Example:
        >>> accumulate(torch.tensor([0.5, 2.0]), torch.tensor([[2.0], [3.0]]), torch.tensor([[0, 2]]))
        tensor([[7.]])
    """
    return segment_sum(weights[:, None] * values, rays)


def _scan_rays(values: Tensor, rays: Tensor, scan: Callable[[Tensor], Tensor]) -> Tensor:
    y = torch.zeros_like(values)
    for start, count in rays.tolist():
        y = torch.cat([y[:start], scan(values[start : start + count]), y[start + count :]])
    return y
