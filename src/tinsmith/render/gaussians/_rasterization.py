"""`rasterization`: rendering of 3-D Gaussians, from end to end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..._errors import ArgumentError, refusal
from .._ops import cast_to_single
from ._blend import rasterize_to_pixels
from ._checks import (
    CameraModel,
    RasterizeMode,
    RenderMode,
    refuse_unsupported,
    require_choice,
    require_positive,
    require_shape,
)
from ._features import Modes, build_meta, check_colors, compute_channels, divide_depth
from ._projection import Projection, check_scene, project

_TRIANGLE = [0, 1, 2, 4, 5, 8]
"""The indices of the upper triangle in a flat 3 x 3 matrix."""


def rasterization(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
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
    packed: bool = True,
    tile_size: int = 16,
    backgrounds: Tensor | None = None,
    render_mode: RenderMode = "RGB",
    sparse_grad: bool = False,
    absgrad: bool = False,
    rasterize_mode: RasterizeMode = "classic",
    channel_chunk: int = 32,
    distributed: bool = False,
    camera_model: CameraModel = "pinhole",
    segmented: bool = False,
    covars: Tensor | None = None,
    with_ut: bool = False,
    with_eval3d: bool = False,
    radial_coeffs: Tensor | None = None,
    tangential_coeffs: Tensor | None = None,
    thin_prism_coeffs: Tensor | None = None,
    ftheta_coeffs: object | None = None,
    rolling_shutter: object | None = None,
    viewmats_rs: Tensor | None = None,
    *,
    engine: str | None = None,
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Render images of 3-D Gaussians for several cameras at once.

    `fully_fused_projection` projects them, `isect_tiles` sorts them, `rasterize_to_pixels` blends them; their
    docstrings have the formulas. Gradients are generated from the kernels.

    Args:
        means: (..., N, 3), in the world. Differentiable.
        quats: (..., N, 4), w x y z, of any length but 0; not read if `covars` is passed. Differentiable.
        scales: (..., N, 3), standard deviations; not read if `covars` is passed. Differentiable.
        opacities: (..., N), 0 to 1. Differentiable.
        colors: (..., N, D) or (..., C, N, D); with `sh_degree` coefficients (..., N, K, D) or (..., C, N, K, D).
            Differentiable.
        viewmats: (..., C, 4, 4), world to camera, x right, y down, z ahead. Differentiable.
        Ks: (..., C, 3, 3), intrinsics in pixels; the skew is not read. Differentiable.
        width: width of the images in pixels.
        height: height of the images in pixels.
        near_plane: the smallest visible depth.
        far_plane: the largest visible depth.
        radius_clip: Gaussians without a radius above this, in pixels, are not visible.
        eps2d: added to the variances in the image, pixels squared.
        sh_degree: 0 to 4: colors are max(0, 0.5 + spherical harmonics of the direction from the camera).
        packed: keep only visible pairs of a camera and a Gaussian, to save memory if each camera sees a part.
        tile_size: side of a tile in pixels; 16 is the fastest on CPUs.
        backgrounds: (..., C, D), the color behind all Gaussians; None for 0. Differentiable.
        render_mode: "RGB" for colors; "D" for depths, the sum of weight times depth; "ED" for expected depths, this sum
            divided by alpha; "RGB+D", "RGB+ED" for both, the depth last and without a background.
        sparse_grad: gradients of means, quats and scales are sparse tensors. Needs `packed`, and no `covars`.
        absgrad: the backward pass sets `meta["means2d"].absgrad`: see `rasterize_to_pixels`.
        rasterize_mode: "antialiased" multiplies opacities by the compensation, "classic" does not.
        channel_chunk: has no effect: channels are always blended in groups of 8.
        distributed: False; True is not supported, like any other value of the options from `with_ut` on.
        camera_model: "pinhole", "ortho" or "fisheye" (equidistant).
        segmented: has no effect: there is only one sorting algorithm.
        covars: (..., N, 3, 3), symmetric, in place of `quats` and `scales`; the upper triangle is read. Differentiable.
        with_ut: False.
        with_eval3d: False.
        radial_coeffs: None.
        tangential_coeffs: None.
        thin_prism_coeffs: None.
        ftheta_coeffs: None.
        rolling_shutter: None, or gsplat's `RollingShutterType.GLOBAL`.
        viewmats_rs: None.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        Images (..., C, height, width, X), with X channels by `render_mode`; alphas (..., C, height, width, 1); and
        a dict of intermediate results: "means2d", "radii", "depths", "conics", "opacities" (with the compensation),
        (..., C, N) or (nnz) with `packed`; "batch_ids", "camera_ids", "gaussian_ids" (nnz) with `packed`, else None;
        "tiles_per_gauss", "isect_ids", "flatten_ids", "isect_offsets"; "width", "height", "tile_size", "tile_width",
        "tile_height", "n_batches", "n_cameras".

    Raises:
        ArgumentError: an option does not fit.
        ShapeError: tensors do not fit each other.
        DtypeError: they are not all float32 or all float64.

    Example:
        >>> means, quats = torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        >>> scales, opacities, red = torch.full((1, 3), 0.1), torch.tensor([0.8]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> Ks = torch.tensor([[[50.0, 0, 32.5], [0, 50, 24.5], [0, 0, 1]]])
        >>> images, alphas, meta = ts.render.gaussians.rasterization(
        ...     means, quats, scales, opacities, red, torch.eye(4)[None], Ks, 64, 48
        ... )
        >>> images.shape, images[0, 24, 32], alphas[0, 24, 32]
        (torch.Size([1, 48, 64, 3]), tensor([0.8000, 0.0000, 0.0000]), tensor([0.8000]))
    """
    modes = Modes(render_mode)
    modes.check("rasterization")
    require_choice("rasterization", "rasterize_mode", rasterize_mode, RasterizeMode)
    width, height, tile_size, channel_chunk = require_positive(
        "rasterization", width=width, height=height, tile_size=tile_size, channel_chunk=channel_chunk
    )
    del segmented
    refuse_unsupported(
        "rasterization",
        distributed=distributed,
        with_ut=with_ut,
        with_eval3d=with_eval3d,
        radial_coeffs=radial_coeffs,
        tangential_coeffs=tangential_coeffs,
        thin_prism_coeffs=thin_prism_coeffs,
        ftheta_coeffs=ftheta_coeffs,
        rolling_shutter=rolling_shutter,
        viewmats_rs=viewmats_rs,
    )
    if covars is not None:
        if sparse_grad:
            rows = [("covars", str(tuple(covars.shape))), ("sparse_grad", "True")]
            headline = "`covars` of `rasterization` have no sparse gradient"
            raise ArgumentError(refusal(headline, rows, "Pass quats and scales, or leave `sparse_grad` out."))
        quats, scales = None, None
        require_shape("rasterization", "covars", covars, "[..., N, 3, 3]", (*means.shape[:-1], 3, 3))
        covars = covars.flatten(-2)[..., torch.tensor(_TRIANGLE, device=covars.device)]
    how = Projection(
        width,
        height,
        eps2d,
        near_plane,
        far_plane,
        radius_clip,
        packed,
        sparse_grad,
        rasterize_mode == "antialiased",
        camera_model,
    )
    scene = check_scene("rasterization", how, means, covars, quats, scales, opacities, viewmats, Ks)
    check_colors("rasterization", scene, cast_to_single(colors), sh_degree)
    projected = project(scene, how, engine)
    shown, backgrounds = compute_channels(
        scene, projected, cast_to_single(colors), sh_degree, backgrounds, modes, engine, how
    )
    assert scene.opacities is not None
    seen_opacities = scene.opacities.index_select(0, projected.rows)
    if how.compensate:
        seen_opacities = seen_opacities * projected.compensations
    others = {"conics": projected.conics, "opacities": seen_opacities}
    meta = build_meta(scene, projected, others, how, tile_size, engine)
    images, alphas = rasterize_to_pixels(
        meta["means2d"],
        meta["conics"],
        shown if packed else shown.view(*meta["means2d"].shape[:-1], shown.shape[-1]),
        meta["opacities"],
        width,
        height,
        tile_size,
        meta["isect_offsets"],
        meta["flatten_ids"],
        backgrounds,
        packed=packed,
        absgrad=absgrad,
        engine=engine,
    )
    if modes.is_expected:
        images = divide_depth(images, alphas)
    return images, alphas, meta
