"""Frustums: the part of space that pinhole cameras can see."""

from __future__ import annotations

import torch
from torch import Tensor

from .._errors import ArgumentError, refusal
from ._cameras import add_camera_axis, camera_axes


def find_visible_balls(
    centers: Tensor,
    radius: float | Tensor,
    poses: Tensor,
    intrinsics: Tensor,
    size: tuple[int, int],
    *,
    near: float,
    convention: str,
) -> Tensor:
    """Find the balls that intersect the frustum of any camera.

    A ball is outside a frustum if it lies entirely behind one of its planes. This is conservative: near an edge of the
    frustum a few balls too many are kept, but a visible one is never dropped.

    Args:
        centers: (m, 3), the centers of the balls, world units.
        radius: the radius of all balls, world units.
        poses: (k, 4, 4), (k, 3, 4), or without k; camera to world.
        intrinsics: (k, 3, 3) or (3, 3), pixels.
        size: width and height of the images, pixels.
        near: the smallest visible depth, world units.
        convention: "opencv" or "opengl".

    Returns:
        (m), bool: True for a ball that may be visible.

    Raises:
        ArgumentError: the images have no pixels, or the convention is unknown.
        ShapeError: poses or intrinsics have another shape.
    """
    width, height = size
    if width < 1 or height < 1:
        rows = [("expected", "1 pixel or more each way"), ("got", f"{width} x {height}")]
        raise ArgumentError(
            refusal("`width` and `height` are less than 1 pixel", rows, "Pass width and height in pixels.")
        )
    axes = camera_axes(convention).to(centers)
    seen = torch.zeros(len(centers), dtype=torch.bool, device=centers.device)
    for pose, matrix in zip(*(given.to(centers) for given in add_camera_axis(poses, intrinsics)), strict=True):
        (fx, skew, cx), (_, fy, cy) = matrix[0], matrix[1]
        zero, one = torch.zeros_like(fx), torch.ones_like(fx)
        inward = [(fx, skew, cx), (-fx, -skew, width - cx), (zero, fy, cy), (zero, -fy, height - cy), (zero, zero, one)]
        normals = torch.stack([torch.stack(row) for row in inward])
        normals = normals / normals.norm(dim=1, keepdim=True)
        depths = (centers - pose[:3, 3]) @ (pose[:3, :3] @ (axes[:, None] * normals.T))
        depths[:, 4] -= near
        seen |= (depths >= -radius).all(1)
    return seen
