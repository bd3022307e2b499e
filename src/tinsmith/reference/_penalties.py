"""What keeps a radiance field tidy: penalties on the weights along rays, in plain torch, a ray at a time."""

from __future__ import annotations

import torch
from torch import Tensor

_FAINTEST = 1e-10


def distortion_loss(weights: Tensor, t: Tensor, steps: Tensor, rays: Tensor) -> Tensor:
    """How far the weights of each ray are spread: the distortion of mip-NeRF 360 (Barron et al. 2022, equation 15).

        loss = sum over i, j of weight_i weight_j |t_i - t_j| + 1/3 sum of weight_i^2 step_i

    Args:
        weights: (s), as `composite` gives them.
        t: (s), middles of the samples, in any order.
        steps: (s), their lengths.
        rays: (n, 2), integers: where a ray's samples start, and how many it has.

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
    """-o log o for the opacity o of each ray; where o is below 1e-10, with that in the logarithm.

    Example:
        >>> opacity_penalty(torch.tensor([0.25, 0.5]))
        tensor([0.3466, 0.3466])
    """
    return -opacity * opacity.clamp(min=_FAINTEST).log()


def entropy_penalty(weights: Tensor, rays: Tensor, *, faintest: float = 0.0) -> Tensor:
    """The entropy -sum of p log p of each ray's weights, with p = weight / their sum; 0 where the sum is faint.

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
