"""References of splatting surfels, which are flat Gaussians, in plain torch, by intersecting rays with their planes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._gaussians import EXTENT, FAINTEST, MOST, OPAQUE, TILE


class ProjectedSurfels(NamedTuple):
    """Surfels projected to an image.

    Attributes:
        radii: (n, 2), integers, pixels; 0 if a surfel is not visible.
        means2d: (n, 2), centers of the ellipses, pixels.
        depths: (n), along the camera's axis.
        centers: (n, 3), the centers in camera space.
        axes: (n, 3, 2), the two axes in camera space, with the scales as their lengths.
        normals: (n, 3), in camera space, facing the camera.
    """

    radii: Tensor
    means2d: Tensor
    depths: Tensor
    centers: Tensor
    axes: Tensor
    normals: Tensor


def project_surfels(
    means: Tensor,
    turns: Tensor,
    scales: Tensor,
    viewmat: Tensor,
    intrinsics: Tensor,
    width: int,
    height: int,
    *,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
) -> ProjectedSurfels:
    """Project surfels to the image of one camera: see `tinsmith.render.gaussians.fully_fused_projection_2dgs`.

    Args:
        means: (n, 3), in the world. Differentiable, as all tensors.
        turns: (n, 3, 3), rotations.
        scales: (n, 2 or 3), standard deviations; the third is not read.
        viewmat: (4, 4), world to camera.
        intrinsics: (3, 3), pixels, without skew.
        width: width of the image in pixels.
        height: height of the image in pixels.
        near_plane: the smallest visible depth.
        far_plane: the largest visible depth.
        radius_clip: surfels without a radius above this, in pixels, are not visible.

    Example:
        >>> intrinsics = torch.tensor([[50.0, 0, 32], [0, 50, 24], [0, 0, 1]])
        >>> means, turns, scales = torch.tensor([[0.0, 0, 2]]), torch.eye(3)[None], torch.tensor([[0.1, 0.1]])
        >>> project_surfels(means, turns, scales, torch.eye(4), intrinsics, 64, 48).radii
        tensor([[9, 9]], dtype=torch.int32)
    """
    centers = means @ viewmat[:3, :3].T + viewmat[:3, 3]
    turned = viewmat[:3, :3] @ turns
    axes, normals = turned[..., :2] * scales[:, None, :2], turned[..., 2]
    normals = torch.where((normals * centers).sum(-1, keepdim=True) < 0, normals, -normals)
    local = torch.cat([axes, centers[..., None]], -1)
    focal, middle = intrinsics.diagonal()[:2], intrinsics[:2, 2]
    onto = torch.cat([focal[:, None] * local[:, :2] + middle[:, None] * local[:, 2:], local[:, 2:]], 1)
    signs = torch.tensor([1.0, 1.0, -1.0], dtype=means.dtype)
    dual = (onto * signs) @ onto.mT
    dual = dual / dual[:, 2:, 2:]
    means2d, depths = dual[:, :2, 2], centers[:, 2]
    with torch.no_grad():
        spread = means2d**2 - dual.diagonal(dim1=1, dim2=2)[:, :2]
        radii = (EXTENT * spread.clamp(min=1e-4).sqrt()).ceil()
        size = torch.tensor([width, height], dtype=means.dtype)
        is_inside = ((means2d + radii > 0) & (means2d - radii < size)).all(1)
        is_seen = (depths > near_plane) & (depths < far_plane) & is_inside & (radii > radius_clip).any(1)
        radii = torch.where(is_seen[:, None], radii, 0).int()
    return ProjectedSurfels(radii, means2d, depths, centers, axes, normals)


def blend_surfels(
    projected: ProjectedSurfels,
    colors: Tensor,
    opacities: Tensor,
    intrinsics: Tensor,
    width: int,
    height: int,
    tile_size: int = TILE,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Blend projected surfels to an image: see `tinsmith.render.gaussians.rasterize_to_pixels_2dgs`.

    Args:
        projected: the surfels. Differentiable, as all tensors.
        colors: (n, d).
        opacities: (n).
        intrinsics: (3, 3), pixels.
        width: width of the image in pixels.
        height: height of the image in pixels.
        tile_size: side of a tile in pixels.

    Returns:
        Colors (height, width, d), remaining transmittance (height, width), normals (height, width, 3) in camera space,
        distortion and median depth, each (height, width).

    Example:
        >>> intrinsics = torch.tensor([[50.0, 0, 1.5], [0, 50, 0.5], [0, 0, 1]])
        >>> means, turns, scales = torch.tensor([[0.0, 0, 2]]), torch.eye(3)[None], torch.tensor([[0.1, 0.1]])
        >>> projected = project_surfels(means, turns, scales, torch.eye(4), intrinsics, 3, 1)
        >>> blend_surfels(projected, torch.ones(1, 1), torch.tensor([0.5]), intrinsics, 3, 1)[1]
        tensor([[0.5384, 0.5000, 0.5384]])
    """
    dtype = projected.means2d.dtype
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    tile = torch.stack([x, y], -1) // tile_size
    middle = torch.stack([x, y], -1).to(dtype) + 0.5
    flat = (middle - intrinsics[:2, 2]) / intrinsics.diagonal()[:2]
    rays = torch.cat([flat, torch.ones_like(flat[..., :1])], -1)
    image = torch.zeros(height, width, colors.shape[1], dtype=dtype)
    normals = torch.zeros(height, width, 3, dtype=dtype)
    median = torch.zeros(height, width, dtype=dtype)
    through, is_open = torch.ones(height, width, dtype=dtype), torch.ones(height, width, dtype=torch.bool)
    weights, order = [], []
    for i in projected.depths.float().argsort(stable=True).tolist():
        if not projected.radii[i].all():
            continue
        low = ((projected.means2d[i] - projected.radii[i]) / tile_size).floor()
        high = ((projected.means2d[i] + projected.radii[i]) / tile_size).ceil()
        # A camera matrix need not be a rotation, so the axes need not be orthogonal: the plane is computed from them.
        axes = projected.axes[i]
        plane = torch.linalg.cross(axes[:, 0], axes[:, 1])
        distance = (projected.centers[i] @ plane) / (rays @ plane)
        apart = distance[..., None] * rays - projected.centers[i]
        place = apart @ axes @ torch.linalg.inv(axes.mT @ axes)
        power = torch.minimum(place.square().sum(-1), 2 * (middle - projected.means2d[i]).square().sum(-1)) / 2
        alpha = (opacities[i] * torch.exp(-power)).clamp(max=MOST)
        is_hit = is_open & (tile >= low).all(-1) & (tile < high).all(-1) & (alpha >= FAINTEST)
        after = through * (1 - alpha)
        is_open = is_open & ~(is_hit & (after <= OPAQUE))
        is_hit = is_hit & is_open
        weight = torch.where(is_hit, through * alpha, 0.0)
        image = image + weight[..., None] * colors[i]
        normals = normals + weight[..., None] * projected.normals[i]
        median = torch.where(is_hit & (through > 0.5), projected.depths[i], median)
        through = torch.where(is_hit, after, through)
        weights.append(weight)
        order.append(i)
    distort = torch.zeros(height, width, dtype=dtype)
    for a in range(len(order)):
        for b in range(a):
            apart = projected.depths[order[a]] - projected.depths[order[b]]
            distort = distort + 2 * weights[a] * weights[b] * apart
    return image, through, normals, distort, median
