"""Frustums: what pinhole cameras can see of space."""

from __future__ import annotations

import torch
from torch import Tensor

from .._errors import ArgumentError, refusal
from ._cameras import as_batch, camera_axes


def find_visible_balls(
    centres: Tensor,
    radius: float | Tensor,
    poses: Tensor,
    intrinsics: Tensor,
    size: tuple[int, int],
    *,
    near: float,
    convention: str,
) -> Tensor:
    """Whether a ball reaches into the frustum of any camera.

    A ball that lies wholly behind one plane of a frustum is outside. One that touches no plane from behind counts as
    inside: beside an edge of the frustum this keeps a few balls too many, and it never drops one that is seen.

    Args:
        centres: (m, 3), world units.
        radius: of all balls, world units.
        poses: (k, 4, 4), (k, 3, 4), or without k; camera to world.
        intrinsics: (k, 3, 3) or (3, 3), pixels.
        size: width and height of the images, pixels.
        near: the least depth that is seen, world units.
        convention: "opencv" or "opengl".

    Returns:
        (m), bool.
    """
    width, height = size
    if width < 1 or height < 1:
        rows = [("expected", "1 pixel or more each way"), ("got", f"{width} x {height}")]
        raise ArgumentError(refusal("an image of this size shows nothing", rows, "Pass width and height in pixels."))
    axes = camera_axes(convention).to(centres)
    seen = torch.zeros(len(centres), dtype=torch.bool, device=centres.device)
    for pose, matrix in zip(*(given.to(centres) for given in as_batch(poses, intrinsics)), strict=True):
        (fx, skew, cx), (_, fy, cy) = matrix[0], matrix[1]
        zero, one = torch.zeros_like(fx), torch.ones_like(fx)
        inward = [(fx, skew, cx), (-fx, -skew, width - cx), (zero, fy, cy), (zero, -fy, height - cy), (zero, zero, one)]
        normals = torch.stack([torch.stack(row) for row in inward])
        normals = normals / normals.norm(dim=1, keepdim=True)
        depths = (centres - pose[:3, 3]) @ (pose[:3, :3] @ (axes[:, None] * normals.T))
        depths[:, 4] -= near
        seen |= (depths >= -radius).all(1)
    return seen
