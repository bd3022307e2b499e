"""Differentiable projection of surfels, which are flat Gaussians, to images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ... import kernels
from .._ops import get_op, register_maker
from .._rule import steady
from ._checks import is_ordered, number_rows
from ._projection import Pairs, Projection, Scene, check_scene, find_indices, gather_rows, list_all_pairs


@dataclass(frozen=True)
class ProjectedSurfels(Pairs):
    """Pairs of an image and a projected surfel.

    Attributes:
        transforms: (p, 9), ray transforms, row by row.
        normals: (p, 3), in camera space, facing the camera.
    """

    transforms: Tensor
    normals: Tensor


def fully_fused_projection_2dgs(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    eps2d: float = 0.3,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    packed: bool = False,
    sparse_grad: bool = False,
    *,
    engine: str | None = None,
) -> tuple[Tensor, ...]:
    """Project surfels, which are flat Gaussians, to images of pinhole cameras.

    The point (u, v) of a surfel is at mean + u scale_0 axis_0 + v scale_1 axis_1, in the world. A ray transform maps
    (u, v, 1) to homogeneous pixels (x w, y w, w). The ellipse u^2 + v^2 = 1 has its center at `means2d`, and radii are
    3.33 times the half sides of its box, at least 0.01 pixels, rounded up. Visibility is as in
    `fully_fused_projection`, except that depths must lie strictly between the planes and opacities are not used.

    Args:
        means: (..., N, 3), in the world. Differentiable.
        quats: (..., N, 4), w x y z; the third axis is the normal. Differentiable.
        scales: (..., N, 3), standard deviations; the third is not read. Differentiable.
        viewmats: (..., C, 4, 4), world to camera. Differentiable.
        Ks: (..., C, 3, 3), pixels; the skew is not read. Differentiable.
        width: width of the images in pixels.
        height: height of the images in pixels.
        eps2d: has no effect, as in gsplat.
        near_plane: the smallest visible depth.
        far_plane: the largest visible depth.
        radius_clip: surfels without a radius above this, in pixels, are not visible.
        packed: return a row for each visible pair of a camera and a surfel.
        sparse_grad: gradients of means, quats and scales are sparse tensors. Needs `packed`, and no batch dims.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        radii (..., C, N, 2) int32, means2d (..., C, N, 2), depths (..., C, N), ray transforms (..., C, N, 3, 3) and
        normals (..., C, N, 3) in camera space, facing the camera; all are 0 if the radius is 0. With `packed`,
        batch_ids, camera_ids and gaussian_ids (nnz) int64 come first, and (nnz) replaces (..., C, N).

    Raises:
        ArgumentError: an option does not fit.
        ShapeError: tensors do not fit each other.

    Example:
        >>> means, quats = torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        >>> scales, Ks = torch.full((1, 3), 0.1), torch.tensor([[[50.0, 0, 32], [0, 50, 24], [0, 0, 1]]])
        >>> project = ts.render.gaussians.fully_fused_projection_2dgs
        >>> radii, means2d, depths, _, normals = project(means, quats, scales, torch.eye(4)[None], Ks, 64, 48)
        >>> radii, means2d, normals
        (tensor([[[9, 9]]], dtype=torch.int32), tensor([[[32., 24.]]]), tensor([[[-0., -0., -1.]]]))
    """
    how = Projection(width, height, eps2d, near_plane, far_plane, radius_clip, packed, sparse_grad)
    function = "fully_fused_projection_2dgs"
    scene = check_scene(function, how, means, None, quats, scales, None, viewmats, Ks)
    projected = project_surfels(scene, how, engine)
    transforms = projected.transforms.view(-1, 3, 3)
    values = (projected.radii, projected.means2d, projected.depths, transforms, projected.normals)
    if packed:
        return (*find_indices(projected, scene.shapes), *values)
    front = (*scene.shapes.batch, scene.shapes.c, scene.shapes.n)
    return tuple([value.view(*front, *value.shape[1:]) for value in values])


def project_surfels(scene: Scene, how: Projection, engine: str | None) -> ProjectedSurfels:
    """Project surfels to images. Return the visible pairs if `how.packed`, else all pairs."""
    images, rows = list_all_pairs(scene.shapes, scene.means.device)
    with torch.no_grad():
        numbers = how.numbers()
        del numbers["eps2d"]
        given = [tensor.detach() for tensor in _list_tensors(scene)]
        radii = get_op("surfel_radii", engine, scene.means)(*given, images, rows, **numbers)
    if how.packed:
        seen = radii[:, 0].nonzero()[:, 0]
        images, rows, radii = images[seen], rows[seen], radii[seen]
    centers, chosen = None, rows
    if how.sparse_grad:
        scene = gather_rows(scene, rows)
        centers, chosen = scene.means, number_rows(rows)
    op = get_op("surfel_projection", engine, scene.means, is_ordered())
    means2d, depths, transforms, normals = op(*_list_tensors(scene), images, chosen, radii)
    return ProjectedSurfels(images, rows, radii, means2d, depths, centers, transforms, normals)


def _list_tensors(scene: Scene) -> list[Tensor]:
    assert scene.quats is not None and scene.scales is not None, "check_scene has checked this"
    return [scene.means, scene.quats, scene.scales, scene.viewmats, scene.intrinsics]


_SURFELS = (
    "means[g, 3], quats[g, 4], scales[g, 3], viewmats[v, 4, 4], intrinsics[v, 3, 3], images[p]: i32, rows[p]: i32"
)


@register_maker("surfel_radii")
def _make_radii_op(lang: Any, fp: str) -> Any:
    return steady(f"{_SURFELS} -> radii[p, 2]: i32", kernels.surfel_radii(lang, fp=fp), name="surfel_radii")


@register_maker("surfel_projection")
def _make_projection_op(lang: Any, fp: str, ordered: bool) -> Any:
    values = "means2d[p, 2], depths[p], transforms[p, 9], normals[p, 3]"
    spec = f"{_SURFELS}, radii[p, 2]: i32 -> {values}"
    kernel = kernels.surfel_projection(lang, fp=fp)
    return steady(spec, kernel, adjoint="source", deterministic=ordered, name="surfel_projection")
