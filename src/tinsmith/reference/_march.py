"""References of rays in plain torch: those of pinhole cameras, their intersection with a box, and marching.

Marching finds the samples of rays in occupied cells by testing all samples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def pinhole_rays(
    poses: Tensor,
    intrinsics: Tensor,
    pixels: Tensor,
    cameras: Tensor,
    *,
    convention: str = "opencv",
    normalize: bool = True,
) -> tuple[Tensor, Tensor]:
    """Compute rays of pinhole cameras through points of their images: see `tinsmith.render.pinhole_rays`.

    Args:
        poses: (k, 3 or 4, 4), camera to world.
        intrinsics: (k, 3, 3), pixels.
        pixels: (n, 2), columns and rows; the center of the first pixel is (0.5, 0.5).
        cameras: (n), int64, the camera of each ray.
        convention: "opencv", where cameras look along +z with y down, or "opengl", where they look along -z with y up.
        normalize: return directions of length 1.

    Returns:
        Origins (n, 3) and directions (n, 3). Differentiable in all floating tensors.

    Example:
        >>> cameras = torch.zeros(1, dtype=torch.int64)
        >>> pinhole_rays(torch.eye(4)[None], torch.eye(3)[None], torch.zeros(1, 2), cameras)[1]
        tensor([[0., 0., 1.]])
    """
    pose, inner = poses[cameras], intrinsics[cameras]
    y = (pixels[:, 1] - inner[:, 1, 2]) / inner[:, 1, 1]
    x = (pixels[:, 0] - inner[:, 0, 2] - inner[:, 0, 1] * y) / inner[:, 0, 0]
    one = torch.ones_like(x)
    seen = torch.stack([x, y, one] if convention == "opencv" else [x, -y, -one], -1)
    directions = torch.einsum("nij,nj->ni", pose[:, :3, :3], seen)
    if normalize:
        directions = directions / seen.norm(dim=-1, keepdim=True)
    return pose[:, :3, 3], directions


def ray_aabb_intersect(
    origins: Tensor, directions: Tensor, aabb: Tensor, *, near: float = 0.0, far: float = math.inf
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute where rays enter and leave a box: see `tinsmith.render.ray_aabb_intersect`.

    Args:
        origins: (n, 3).
        directions: (n, 3), of any length; t is in units of it.
        aabb: (6), lower corner and upper corner.
        near: the smallest t of a ray.
        far: the largest t of a ray.

    Returns:
        t_near (n), t_far (n), both `far` for a ray that misses, and hit (n), bool. Differentiable in all tensors.

    Example:
        >>> ray_aabb_intersect(torch.zeros(1, 3), torch.ones(1, 3), torch.tensor([1.0, 1, 1, 2, 2, 2]))
        (tensor([1.]), tensor([2.]), tensor([True]))
    """
    parallel = directions == 0
    safe = torch.where(parallel, 1.0, directions)
    first, second = (aabb[:3] - origins) / safe, (aabb[3:] - origins) / safe
    enter = torch.where(parallel, near, torch.minimum(first, second)).amax(-1).clamp(min=near)
    leave = torch.where(parallel, far, torch.maximum(first, second)).amin(-1).clamp(max=far)
    between = ~parallel | ((aabb[:3] <= origins) & (origins <= aabb[3:]))
    hit = between.all(-1) & (enter <= leave)
    return torch.where(hit, enter, far), torch.where(hit, leave, far), hit


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
    """Sample rays in the occupied cells of a grid: see `tinsmith.render.march`.

    From e[0], where a ray enters both the outermost box and the scene's box (or `near`, if later), with the ray's
    offset u:

        d[k] = min(max(step, cone_angle e[k]), max_step),   e[k + 1] = e[k] + d[k],   t[k] = e[k] + u d[k]

    A sample is returned if it is before the ray's end and in an occupied cell, up to `max_steps` samples per ray.
    Level l covers the box scaled by 2^l about its center; the finest level that contains a sample applies.

    Args:
        origins: (n, 3).
        directions: (n, 3), of any length; t is in units of it.
        aabb: (6), lower corner and upper corner of level 0.
        occupied: (l, x, y, z), bool: the occupied cells of each level.
        offsets: (n), in [0, 1).
        step: the smallest distance between samples.
        near: where rays start to be sampled: a number, or (n).
        far: where rays stop being sampled: a number, or (n).
        scene_box: (6), only what is inside is sampled; None for the whole grid.
        cone_angle: growth of the distance between samples with t.
        max_step: the largest distance between samples.
        max_steps: maximum number of samples per ray; the first ones are kept.

    Returns:
        rays (n, 2), the start and the count of each ray's samples; the ray (s), t (s) and d (s) of each sample. Not
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
    """Return True for positions in occupied cells, (n, 3) to (n).

    `middle` and `half` are the center and the half size of level 0.
    """
    resolution = torch.tensor(occupied.shape[1:])
    aside = ((places - middle) / half).abs().amax(-1)
    level = sum((aside > 2.0**finer).long() for finer in range(len(occupied) - 1)) + torch.zeros_like(aside).long()
    share = ((places - middle) / half / 2.0 ** level[:, None] + 1) / 2
    cell = (share * resolution).floor().long().clamp(min=0).minimum(resolution - 1)
    return occupied[level, cell[:, 0], cell[:, 1], cell[:, 2]]
