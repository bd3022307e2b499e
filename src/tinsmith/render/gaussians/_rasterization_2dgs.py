"""`rasterization_2dgs`: rendering of surfels, which are flat Gaussians, from end to end."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .._ops import cast_to_single
from ._blend_2dgs import Surfels, attach_densify, blend_surfels, refuse_absgrad
from ._checks import DepthMode, RenderMode, require_choice, require_positive, require_shape
from ._features import Modes, build_meta, check_colors, compute_channels, divide_depth
from ._projection import Projection, check_scene
from ._projection_2dgs import project_surfels


class RasterizedSurfels(NamedTuple):
    """The result of `rasterization_2dgs`, in gsplat's order.

    Attributes:
        colors: (..., C, height, width, X).
        alphas: (..., C, height, width, 1).
        normals: (..., C, height, width, 3), in the world, towards the camera; weighted sums, not of length 1.
        surface_normals: (..., C, height, width, 3), in the world: normals of the surface given by the depths; 0 along
            the border. None unless both colors and depths are rendered.
        distortion: (..., C, height, width, 1).
        median: (..., C, height, width, 1), median depths.
        meta: intermediate results.

    Example:
        >>> means, quats = torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        >>> scales, opacities, red = torch.full((1, 3), 0.1), torch.tensor([0.8]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> given = (means, quats, scales, opacities, red, torch.eye(4)[None], 50 * torch.eye(3)[None])
        >>> ts.render.gaussians.rasterization_2dgs(*given, 64, 48).normals.shape
        torch.Size([1, 48, 64, 3])
    """

    colors: Tensor
    alphas: Tensor
    normals: Tensor
    surface_normals: Tensor | None
    distortion: Tensor
    median: Tensor
    meta: dict[str, Any]


def rasterization_2dgs(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    eps2d: float = 0.3,
    sh_degree: int | None = None,
    packed: bool = False,
    tile_size: int = 16,
    backgrounds: Tensor | None = None,
    render_mode: RenderMode = "RGB",
    sparse_grad: bool = False,
    absgrad: bool = False,
    distloss: bool = False,
    depth_mode: DepthMode = "expected",
    *,
    engine: str | None = None,
) -> RasterizedSurfels:
    """Render surfels (flat Gaussians) with normals, distortion and median depths: 2-D Gaussian splatting.

    `fully_fused_projection_2dgs` projects them, `isect_tiles` sorts them, `rasterize_to_pixels_2dgs` blends them; their
    docstrings have the formulas.

    Args:
        means: (..., N, 3), in the world. Differentiable.
        quats: (..., N, 4), w x y z; the third axis is the normal. Differentiable.
        scales: (..., N, 3); the third is not read. Differentiable.
        opacities: (..., N). Differentiable.
        colors: as in `rasterization`. Differentiable.
        viewmats: (..., C, 4, 4), world to camera. Differentiable.
        Ks: (..., C, 3, 3), pixels. Differentiable.
        width: width of the images in pixels.
        height: height of the images in pixels.
        near_plane: the smallest visible depth.
        far_plane: the largest visible depth.
        radius_clip: surfels without a radius above this, in pixels, are not visible.
        eps2d: has no effect, as in gsplat.
        sh_degree: as in `rasterization`.
        packed: keep only visible pairs of a camera and a surfel.
        tile_size: side of a tile in pixels.
        backgrounds: (..., C, D). Differentiable.
        render_mode: as in `rasterization`.
        sparse_grad: gradients of means, quats and scales are sparse tensors. Needs `packed`.
        absgrad: not supported, raises an error; strategies for surfels use `meta["gradient_2dgs"]`.
        distloss: compute the distortion of depths, which is 0 otherwise.
        depth_mode: surface normals come from the rendered depth ("expected") or from the median depth ("median").
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        `RasterizedSurfels(colors, alphas, normals, surface_normals, distortion, median, meta)`. The dict is that of
        `rasterization`, with "ray_transforms" and "normals" instead of "conics", "render_distort", and
        "gradient_2dgs": zeros, whose `.grad` the backward pass sets.

    Raises:
        ArgumentError: an option does not fit.
        ShapeError: tensors do not fit each other.

    Example:
        >>> means, quats = torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        >>> scales, opacities, red = torch.full((1, 3), 0.1), torch.tensor([0.8]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> Ks = torch.tensor([[[50.0, 0, 32.5], [0, 50, 24.5], [0, 0, 1]]])
        >>> seen = ts.render.gaussians.rasterization_2dgs(
        ...     means, quats, scales, opacities, red, torch.eye(4)[None], Ks, 64, 48, render_mode="RGB+ED"
        ... )
        >>> seen.colors[0, 24, 32], seen.median[0, 24, 32]
        (tensor([0.8000, 0.0000, 0.0000, 2.0000]), tensor([2.]))
    """
    function = "rasterization_2dgs"
    modes = Modes(render_mode)
    modes.check(function)
    require_choice(function, "depth_mode", depth_mode, DepthMode)
    refuse_absgrad(function, absgrad)
    width, height, tile_size = require_positive(function, width=width, height=height, tile_size=tile_size)
    how = Projection(width, height, eps2d, near_plane, far_plane, radius_clip, packed, sparse_grad)
    scene = check_scene(function, how, means, None, quats, scales, opacities, viewmats, Ks)
    colors = cast_to_single(colors)
    check_colors(function, scene, colors, sh_degree)
    projected = project_surfels(scene, how, engine)
    shown, backgrounds = compute_channels(scene, projected, colors, sh_degree, backgrounds, modes, engine, how)
    if backgrounds is not None:
        front = (*scene.shapes.batch, scene.shapes.c)
        require_shape(function, "backgrounds", backgrounds, "[..., C, D]", (*front, shown.shape[-1]))
    assert scene.opacities is not None
    peaks = scene.opacities.index_select(0, projected.rows)
    others = {
        "ray_transforms": projected.transforms.view(-1, 3, 3),
        "opacities": peaks,
        "normals": projected.normals,
    }
    meta = build_meta(scene, projected, others, how, tile_size, engine)
    densify = torch.zeros_like(meta["means2d"], requires_grad=meta["means2d"].requires_grad)
    # The tensors of the dict are the ones blended, so that callers can ask for their gradients.
    transforms = attach_densify(meta["ray_transforms"].reshape(-1, 9), densify.reshape(-1, 2))
    means2d, normals = meta["means2d"].reshape(-1, 2), meta["normals"].reshape(-1, 3)
    surfels = Surfels(means2d, transforms, shown, normals, projected.depths, meta["opacities"].reshape(-1))
    lists = (meta["isect_offsets"], meta["flatten_ids"], None)
    images, alphas, normals, distort, median = blend_surfels(
        function, surfels, lists, (height, width, tile_size), backgrounds, distloss, engine
    )
    if modes.is_expected:
        images = divide_depth(images, alphas)
    to_world = torch.linalg.inv(scene.viewmats)
    turn = to_world[:, :3, :3].view(*scene.shapes.batch, scene.shapes.c, 1, 1, 3, 3)
    surface = None
    if modes.has_color and modes.has_depth:
        depth = images[..., -1:] if depth_mode == "expected" else median
        surface = compute_surface_normals(depth, turn, cast_to_single(Ks))
    meta |= {"render_distort": distort, "gradient_2dgs": densify}
    return RasterizedSurfels(images, alphas, (turn @ normals[..., None])[..., 0], surface, distort, median, meta)


def compute_surface_normals(depth: Tensor, turn: Tensor, intrinsics: Tensor) -> Tensor:
    """Compute the normals, in the world, of the surface given by a depth image, (..., h, w, 3); 0 along the border.

    Args:
        depth: (..., h, w, 1).
        turn: (..., 1, 1, 3, 3), the cameras' rotations, camera to world.
        intrinsics: (..., 3, 3), pixels.
    """
    height, width = depth.shape[-3:-1]
    down, across = (torch.arange(size, dtype=depth.dtype, device=depth.device) + 0.5 for size in (height, width))
    x, y = torch.meshgrid(across, down, indexing="xy")
    fx, fy, cx, cy = (intrinsics[..., i, j, None, None] for i, j in ((0, 0), (1, 1), (0, 2), (1, 2)))
    flat = torch.stack([(x - cx) / fx, (y - cy) / fy, torch.ones_like((x - cx) / fx)], -1)
    # The camera's position cancels in differences of points.
    points = (turn @ (flat * depth)[..., None])[..., 0]
    along_y = points[..., 2:, 1:-1, :] - points[..., :-2, 1:-1, :]
    along_x = points[..., 1:-1, 2:, :] - points[..., 1:-1, :-2, :]
    normals = functional.normalize(torch.linalg.cross(along_y, along_x), dim=-1)
    return functional.pad(normals, (0, 0, 1, 1, 1, 1))
