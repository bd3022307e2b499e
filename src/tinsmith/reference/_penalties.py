"""References of penalties on the weights and opacities along rays, in plain torch, one ray at a time."""

from __future__ import annotations

import torch
from torch import Tensor

_FAINTEST = 1e-10


def distortion_loss(weights: Tensor, t: Tensor, steps: Tensor, rays: Tensor) -> Tensor:
    """Compute the spread of the weights along each ray, the distortion loss of mip-NeRF 360.

    Barron et al. 2022, equation 15:

        loss = sum over i, j of weight_i weight_j |t_i - t_j| + 1/3 sum of weight_i^2 step_i

    Args:
        weights: (s), from `composite`.
        t: (s), midpoints of the samples, in any order.
        steps: (s), lengths of the samples.
        rays: (n, 2), integers: the start and the count of each ray's samples.

    Returns:
        (n). Differentiable in weights, t and steps.

    Example:
        >>> distortion_loss(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 3.0]), torch.ones(2), torch.tensor([[0, 2]]))
        tensor([1.1667])
    """
    losses = []
    for start, count in rays.tolist():
        weight, place, step = (tensor[start : start + count] for tensor in (weights, t, steps))
        pairs = weight[:, None] * weight * (place[:, None] - place).abs()
        losses.append(pairs.sum() + (weight**2 * step).sum() / 3)
    return torch.stack(losses)


def opacity_penalty(opacity: Tensor) -> Tensor:
    """Compute a penalty on half-transparent rays: -o log max(o, 1e-10) for each opacity o, of any shape.

    It is 0 for opacities 0 and 1. Differentiable.

    Example:
        >>> opacity_penalty(torch.tensor([0.25, 0.5]))
        tensor([0.3466, 0.3466])
    """
    return -opacity * opacity.clamp(min=_FAINTEST).log()


def entropy_penalty(weights: Tensor, rays: Tensor, *, faintest: float = 0.0) -> Tensor:
    """Compute the entropy of the distribution of weights along each ray, as in InfoNeRF (Kim et al. 2022, equation 5).

        p_i = weight_i / sum of the ray's weights
        penalty = -sum of p_i log max(p_i, 1e-10)

    Args:
        weights: (s), not negative. Differentiable.
        rays: (n, 2), integers: the start and the count of each ray's samples.
        faintest: a ray whose weights sum to this or less has penalty 0.

    Returns:
        (n), in nats.

    Example:
        >>> entropy_penalty(torch.tensor([0.25, 0.25]), torch.tensor([[0, 2]]))
        tensor([0.6931])
    """
    entropies = []
    for start, count in rays.tolist():
        weight = weights[start : start + count]
        if count == 0 or weight.sum() <= max(faintest, _FAINTEST):
            entropies.append((0 * weight).sum())
        else:
            p = weight / weight.sum()
            entropies.append(-(p * p.clamp(min=_FAINTEST).log()).sum())
    return torch.stack(entropies)
