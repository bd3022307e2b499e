"""The samples of rays in the occupied cells of a grid: every sample of the lattice is looked at, in plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._rays import ray_aabb_intersect


def march(
    origins: Tensor,
    directions: Tensor,
    aabb: Tensor,
    occupied: Tensor,
    offsets: Tensor,
    *,
    step: float,
    near: float | Tensor = 0.0,
    far: float | Tensor = math.inf,
    scene_box: Tensor | None = None,
    cone_angle: float = 0.0,
    max_step: float = math.inf,
    max_steps: int = 1024,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where rays are sampled.

    From e[0], where a ray enters the outermost box and the scene's (or `near`), with the ray's offset u:

        d[k] = min(max(step, cone_angle e[k]), max_step),   e[k + 1] = e[k] + d[k],   t[k] = e[k] + u d[k]

    A sample stays if it is before the ray's end, its cell is occupied, and no more than `max_steps` - 1 that stay are
    before it. Level l covers the box scaled by 2^l about its middle; the finest level counts that a sample lies in.

    Args:
        origins: (n, 3).
        directions: (n, 3), of any length; t counts in it.
        aabb: (6), lower corner and upper corner of level 0.
        occupied: (l, x, y, z), bool.
        offsets: (n), in [0, 1).
        step: the least distance between samples.
        near: what lies before does not count; a number, or (n).
        far: what lies behind does not count; a number, or (n).
        scene_box: (6), what lies outside does not count; None for all of the grid.
        cone_angle: how the distance grows with t.
        max_step: the longest distance between samples.
        max_steps: samples a ray at most.

    Returns:
        rays (n, 2), where a ray's samples start and how many they are; ray_index (s), t (s) and d (s). Not
        differentiable.

    Example:
        >>> ray = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> box, cells = torch.tensor([0.0, 0, 0, 1, 1, 1]), torch.tensor([False, True]).view(1, 2, 1, 1)
        >>> march(*ray, box, cells, torch.tensor([0.5]), step=0.25)[2]
        tensor([1.6250, 1.8750])
    """
    middle, half = (aabb[:3] + aabb[3:]) / 2, (aabb[3:] - aabb[:3]) / 2
    outer = half * 2 ** (len(occupied) - 1)
    first, last = (torch.as_tensor(end, dtype=origins.dtype).expand(len(origins)) for end in (near, far))
    hit = (directions != 0).any(-1)
    for box in (torch.cat([middle - outer, middle + outer]), *([] if scene_box is None else [scene_box])):
        enters, leaves, is_hit = ray_aabb_intersect(origins, directions, box, near=-math.inf)
        first, last, hit = torch.maximum(first, enters), torch.minimum(last, leaves), hit & is_hit
    edge, samples = first, []
    while bool((hit & (edge < last)).any()):
        length = (cone_angle * edge).clamp(min=step, max=max_step)
        t = edge + offsets * length
        stays = hit & (t < last)
        stays &= _is_occupied(origins + t[:, None] * directions, middle, half, occupied)
        samples.append((t, length, stays))
        edge = edge + length
    if not samples:
        none = torch.zeros_like(origins[:0, 0])
        return torch.zeros(len(origins), 2, dtype=torch.int32), none.int(), none, none
    t, length, stays = (torch.stack(column, 1) for column in zip(*samples, strict=True))
    stays &= stays.cumsum(1) <= max_steps
    counts = stays.sum(1)
    rays = torch.stack([counts.cumsum(0) - counts, counts], 1).to(torch.int32)
    return rays, stays.nonzero()[:, 0].to(torch.int32), t[stays], length[stays]


def _is_occupied(places: Tensor, middle: Tensor, half: Tensor, occupied: Tensor) -> Tensor:
    """Whether the cells are in which places lie; (n, 3) to (n)."""
    resolution = torch.tensor(occupied.shape[1:])
    aside = ((places - middle) / half).abs().amax(-1)
    level = sum((aside > 2.0**finer).long() for finer in range(len(occupied) - 1)) + torch.zeros_like(aside).long()
    share = ((places - middle) / half / 2.0 ** level[:, None] + 1) / 2
    cell = (share * resolution).floor().long().clamp(min=0).minimum(resolution - 1)
    return occupied[level, cell[:, 0], cell[:, 1], cell[:, 2]]
