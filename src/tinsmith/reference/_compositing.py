"""References of compositing along rays, with emission and absorption: in plain torch, one ray at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Composited(NamedTuple):
    """The result of compositing along rays.

    Attributes:
        color: (n, c), including the background.
        opacity: (n), the fraction of the background that is hidden, 0 to 1.
        depth: (n), the sum of weight times t, not divided by the opacity.
        weights: (s), or (n, k) in the dense form: the weight of each sample in its ray's color.

    Example:
        >>> half = torch.full((1, 2), 2.0).log()
        >>> seen = ts.render.composite(half, torch.ones(1, 2, 3), torch.tensor([[1.0, 2.0]]), torch.ones(1, 2))
        >>> seen.opacity, seen.depth, seen.color
        (tensor([0.7500]), tensor([1.]), tensor([[0.7500, 0.7500, 0.7500]]))
    """

    color: Tensor
    opacity: Tensor
    depth: Tensor
    weights: Tensor


def composite(
    densities: Tensor,
    colors: Tensor,
    t: Tensor,
    steps: Tensor,
    rays: Tensor | None = None,
    *,
    background: Tensor | None = None,
    threshold: float = 0.0,
) -> Composited:
    """Composite samples that emit and absorb light into a color, an opacity and a depth for each ray.

    For the samples i of a ray, front to back, with T_i the transmittance of sample i:

        alpha_i = 1 - exp(-density_i step_i)
        T_i = product over j < i of (1 - alpha_j)
        weight_i = T_i alpha_i                  0 where T_i < threshold
        color = sum of weight_i color_i + (1 - opacity) background
        opacity = sum of weight_i
        depth = sum of weight_i t_i

    Args:
        densities: (s), or dense (n, k), per unit of length.
        colors: (s, c) or (n, k, c), any number of channels.
        t: shaped like `densities`; positions of the samples along their ray.
        steps: shaped like `densities`; lengths of the samples.
        rays: (n, 2), integers: the start and the count of each ray's samples. None for the dense form.
        background: (c) or (n, c), the color behind all samples; None for 0.
        threshold: a ray ends once its transmittance is below this.

    Returns:
        `Composited(color, opacity, depth, weights)`, differentiable in all floating tensors. Samples that belong to
        no ray have weight 0.

    Example:
        >>> half = torch.full((1, 2), 2.0).log()
        >>> composite(half, torch.ones(1, 2, 3), torch.tensor([[1.0, 2.0]]), torch.ones(1, 2)).weights
        tensor([[0.5000, 0.2500]])
    """
    samples = (densities, colors, t, steps)
    return _composite_with(_composite_densities, samples, rays, background, threshold)


def composite_alphas(
    alphas: Tensor,
    colors: Tensor,
    t: Tensor,
    rays: Tensor | None = None,
    *,
    background: Tensor | None = None,
    threshold: float = 0.0,
) -> Composited:
    """Composite samples with alphas, instead of densities, into a color, an opacity and a depth for each ray.

    The formulas are those of `composite`, with alpha_i given.

    Args:
        alphas: (s), or dense (n, k), between 0 and 1.
        colors: (s, c) or (n, k, c), any number of channels.
        t: shaped like `alphas`; positions of the samples along their ray.
        rays: (n, 2), integers: the start and the count of each ray's samples. None for the dense form.
        background: (c) or (n, c), the color behind all samples; None for 0.
        threshold: a ray ends once its transmittance is below this.

    Returns:
        `Composited(color, opacity, depth, weights)`, differentiable in all floating tensors. Samples that belong to
        no ray have weight 0.

    Example:
        >>> composite_alphas(torch.full((1, 2), 0.5), torch.ones(1, 2, 3), torch.ones(1, 2)).weights
        tensor([[0.5000, 0.2500]])
    """
    return _composite_with(_composite_alphas, (alphas, colors, t), rays, background, threshold)


def _composite_with(
    along: Callable[..., tuple[Tensor, ...]],
    samples: tuple[Tensor, ...],
    rays: Tensor | None,
    background: Tensor | None,
    threshold: float,
) -> Composited:
    """Composite the samples of all rays. `along` composites those of one ray, from its samples and the threshold."""
    first = samples[0]
    if rays is None:
        dense = [along(*ray, threshold) for ray in zip(*samples, strict=True)]
        weights = torch.stack([ray[-1] for ray in dense]) if dense else first
    else:
        spans = [slice(start, start + count) for start, count in rays.tolist()]
        dense = [along(*(one[at] for one in samples), threshold) for at in spans]
        weights = torch.zeros_like(first)
        for at, ray in zip(spans, dense, strict=True):
            weights = torch.cat([weights[: at.start], ray[-1], weights[at.stop :]])
    color, opacity, depth = (torch.stack([ray[j] for ray in dense]) for j in range(3))
    if background is not None:
        color = color + (1 - opacity)[:, None] * background
    return Composited(color, opacity, depth, weights)


def _composite_densities(
    density: Tensor, color: Tensor, t: Tensor, step: Tensor, threshold: float
) -> tuple[Tensor, ...]:
    absorbed = density * step
    through = torch.exp(absorbed - absorbed.cumsum(0))  # to sample i, itself left out
    return _sum_samples(through, -torch.expm1(-absorbed), color, t, threshold)


def _composite_alphas(alpha: Tensor, color: Tensor, t: Tensor, threshold: float) -> tuple[Tensor, ...]:
    through = torch.cat([torch.ones_like(alpha[:1]), 1 - alpha[:-1]]).cumprod(0)
    return _sum_samples(through, alpha, color, t, threshold)


def _sum_samples(through: Tensor, alpha: Tensor, color: Tensor, t: Tensor, threshold: float) -> tuple[Tensor, ...]:
    """Compute color, opacity and depth of one ray, and its weights, from the samples' transmittance and alphas."""
    is_reached = (through >= threshold).cumprod(0).bool()
    weight = torch.where(is_reached, through * alpha, 0)
    return weight @ color, weight.sum(), (weight * t).sum(), weight
