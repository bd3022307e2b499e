"""Compositing along rays: emission and absorption, in plain torch, a ray at a time."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Composited(NamedTuple):
    """What is seen along rays.

    Attributes:
        colour: (n, c), the background behind what is left included.
        opacity: (n), how much of the background is hidden.
        depth: (n), the sum of weight times t, which is not divided by the opacity.
        weights: (s), or (n, k) in the dense form: what each sample adds to its ray.

    Example:
        >>> half = torch.full((1, 2), 2.0).log()
        >>> seen = ts.render.composite(half, torch.ones(1, 2, 3), torch.tensor([[1.0, 2.0]]), torch.ones(1, 2))
        >>> seen.opacity, seen.depth, seen.colour
        (tensor([0.7500]), tensor([1.]), tensor([[0.7500, 0.7500, 0.7500]]))
    """

    colour: Tensor
    opacity: Tensor
    depth: Tensor
    weights: Tensor


def composite(
    densities: Tensor,
    colours: Tensor,
    t: Tensor,
    steps: Tensor,
    rays: Tensor | None = None,
    *,
    background: Tensor | None = None,
    threshold: float = 0.0,
) -> Composited:
    """What is seen along rays through samples that emit and absorb light.

    With i the samples of a ray, front to back, and T_i what shines through to sample i:

        alpha_i = 1 - exp(-density_i step_i)
        T_i = product over j < i of (1 - alpha_j)
        weight_i = T_i alpha_i                  0 where T_i < threshold
        colour = sum of weight_i colour_i + (1 - opacity) background
        opacity = sum of weight_i
        depth = sum of weight_i t_i

    Args:
        densities: (s) or (n, k), per unit of length.
        colours: (s, c) or (n, k, c).
        t: as densities; where the samples are along their ray.
        steps: as densities; how long they are.
        rays: (n, 2), integers: where a ray's samples start, and how many it has. None for the dense form.
        background: (c) or (n, c); None for none.
        threshold: a ray ends where less than this shines through.

    Returns:
        Differentiable in all floating tensors. Samples of no ray have weight 0.

    Example:
        >>> half = torch.full((1, 2), 2.0).log()
        >>> composite(half, torch.ones(1, 2, 3), torch.tensor([[1.0, 2.0]]), torch.ones(1, 2)).weights
        tensor([[0.5000, 0.2500]])
    """
    if rays is None:
        dense = [_along(*ray, threshold) for ray in zip(densities, colours, t, steps, strict=True)]
        weights = torch.stack([ray[-1] for ray in dense]) if dense else densities
    else:
        spans = [slice(start, start + count) for start, count in rays.tolist()]
        dense = [_along(densities[at], colours[at], t[at], steps[at], threshold) for at in spans]
        weights = torch.zeros_like(densities)
        for at, ray in zip(spans, dense, strict=True):
            weights = torch.cat([weights[: at.start], ray[-1], weights[at.stop :]])
    colour, opacity, depth = (torch.stack([ray[j] for ray in dense]) for j in range(3))
    if background is not None:
        colour = colour + (1 - opacity)[:, None] * background
    return Composited(colour, opacity, depth, weights)


def _along(density: Tensor, colour: Tensor, t: Tensor, step: Tensor, threshold: float) -> tuple[Tensor, ...]:
    absorbed = density * step
    through = torch.exp(absorbed - absorbed.cumsum(0))  # to sample i, itself left out
    alpha = -torch.expm1(-absorbed)
    is_reached = (through >= threshold).cumprod(0).bool()
    weight = torch.where(is_reached, through * alpha, 0)
    return weight @ colour, weight.sum(), (weight * t).sum(), weight
