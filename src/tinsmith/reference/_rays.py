"""References of rays of pinhole cameras, and of their intersection with a box, in plain torch."""

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
