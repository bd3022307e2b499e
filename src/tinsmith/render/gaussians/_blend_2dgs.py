"""Differentiable blending of projected surfels to images."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import kernels
from ..._errors import ArgumentError, refusal
from .._ops import cast_to_single, get_op, register_maker
from .._packed import check_floats
from .._rule import steady
from ._blend import CHUNK, check_gaussians, make_lists
from ._checks import is_ordered, require_positive


class Surfels(NamedTuple):
    """The tensors that are blended, with a row for each pair of an image and a surfel.

    `depths` is used for the distortion and the median depth.
    """

    means2d: Tensor
    transforms: Tensor
    colors: Tensor
    normals: Tensor
    depths: Tensor
    opacities: Tensor


def rasterize_to_pixels_2dgs(
    means2d: Tensor,
    ray_transforms: Tensor,
    colors: Tensor,
    opacities: Tensor,
    normals: Tensor,
    densify: Tensor | None,
    image_width: int,
    image_height: int,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    backgrounds: Tensor | None = None,
    masks: Tensor | None = None,
    packed: bool = False,
    absgrad: bool = False,
    distloss: bool = False,
    *,
    engine: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Blend projected surfels, front to back, in the order of tile lists.

    A pixel's ray meets the plane of surfel i at (u, v), in standard deviations; d goes from the surfel's center to the
    pixel's, and z_i is the surfel's last channel, a depth:

        alpha_i = min(0.999, opacity_i exp(-min(u^2 + v^2, 2 d^2) / 2))      left out if it is below 1 / 255
        weight_i = alpha_i product over j < i of (1 - alpha_j)
        color = sum of weight_i color_i + (1 - alpha) background,   normal = sum of weight_i normal_i
        distort = 2 sum over j < i of weight_i weight_j (z_i - z_j)
        median = z of the last surfel whose transmittance is above one half

    Pixels end, and are differentiated, as in `rasterize_to_pixels`.

    Args:
        means2d: (..., N, 2), or (nnz, 2) with `packed`, in pixels. Differentiable.
        ray_transforms: (..., N, 3, 3) or (nnz, 3, 3), from `fully_fused_projection_2dgs`. Differentiable.
        colors: (..., N, D) or (nnz, D). Differentiable.
        opacities: (..., N) or (nnz). Differentiable.
        normals: (..., N, 3) or (nnz, 3). Differentiable.
        densify: shaped like means2d, or None. It does not affect the result; its gradient is that of the third column
            of the transform times the depth, the signal that strategies use for densification.
        image_width: width of the images in pixels.
        image_height: height of the images in pixels.
        tile_size: side of a tile in pixels.
        isect_offsets: (..., tile_height, tile_width), from `isect_offset_encode`.
        flatten_ids: (n_isects), from `isect_tiles`.
        backgrounds: (..., D); None for 0. Differentiable.
        masks: (..., tile_height, tile_width), bool; a tile where it is False shows only the background.
        packed: tensors have a row for each visible surfel.
        absgrad: not supported, raises an error; strategies for surfels use the gradient of `densify`.
        distloss: compute the distortion, which is 0 otherwise.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        Colors (..., image_height, image_width, D), alphas (..., 1), normals (..., 3) in camera space, distortion
        (..., 1), median depth (..., 1).

    Raises:
        ArgumentError: `absgrad` is True.
        ShapeError: tensors do not fit each other.

    Example:
        >>> means, quats = torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        >>> scales, Ks = torch.full((1, 3), 0.1), torch.tensor([[[50.0, 0, 1.5], [0, 50, 0.5], [0, 0, 1]]])
        >>> project = ts.render.gaussians.fully_fused_projection_2dgs
        >>> radii, means2d, depths, T, normals = project(means, quats, scales, torch.eye(4)[None], Ks, 3, 1)
        >>> offsets, ids = torch.zeros(1, 1, 1).int(), torch.zeros(1).int()
        >>> given = (means2d, T, depths[..., None], torch.full((1, 1), 0.5), normals, None, 3, 1, 16, offsets, ids)
        >>> depth, alpha, normal, *_ = ts.render.gaussians.rasterize_to_pixels_2dgs(*given)
        >>> depth[0, 0, :, 0], normal[0, 0, 1]
        (tensor([0.9231, 1.0000, 0.9231]), tensor([ 0.0000,  0.0000, -0.5000]))
    """
    function = "rasterize_to_pixels_2dgs"
    refuse_absgrad(function, absgrad)
    names = ("means2d", "ray_transforms", "colors", "opacities", "normals", "backgrounds")
    given = zip(names, (means2d, ray_transforms, colors, opacities, normals, backgrounds), strict=True)
    floats = {name: cast_to_single(tensor) for name, tensor in given if tensor is not None}
    check_floats(function, floats)
    image_width, image_height, tile_size = require_positive(
        function, image_width=image_width, image_height=image_height, tile_size=tile_size
    )
    check_gaussians(function, floats, isect_offsets.shape[:-2], packed)
    transforms = floats["ray_transforms"].reshape(-1, 9)
    if densify is not None:
        transforms = attach_densify(transforms, densify.reshape(-1, 2))
    flat = floats["colors"].flatten(0, -2)
    surfels = Surfels(
        floats["means2d"].reshape(-1, 2),
        transforms,
        flat,
        floats["normals"].reshape(-1, 3),
        flat[:, -1],
        floats["opacities"].reshape(-1),
    )
    lists = (isect_offsets, flatten_ids, masks)
    size = (image_height, image_width, tile_size)
    return blend_surfels(function, surfels, lists, size, floats.get("backgrounds"), distloss, engine)


def refuse_absgrad(function: str, absgrad: bool) -> None:
    """Raise ArgumentError if `absgrad` is True: the gradient of centers is not the signal to densify surfels by.

    Surfels move by their transforms, whose gradient strategies use.
    """
    if absgrad:
        remedy = "Leave it out: strategies for surfels use the gradients in meta['gradient_2dgs']."
        raise ArgumentError(refusal(f"`{function}` has no absolute gradients", [("absgrad", "True")], remedy))


def attach_densify(transforms: Tensor, densify: Tensor) -> Tensor:
    """Return the transforms with unchanged values, so that `densify` gets a gradient too.

    That gradient is the one of the transforms' third column, times the depth.
    """
    moved = (densify - densify.detach()) * transforms[:, 8:].detach()
    zero = torch.zeros_like(transforms)
    return transforms + torch.cat([zero[:, :2], moved[:, :1], zero[:, :2], moved[:, 1:], zero[:, :3]], 1)


def blend_surfels(
    function: str,
    surfels: Surfels,
    lists: tuple[Tensor, Tensor, Tensor | None],
    size: tuple[int, int, int],
    backgrounds: Tensor | None,
    distorts: bool,
    engine: str | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Blend surfels to images, as described in `rasterize_to_pixels_2dgs`.

    Args:
        function: the name of the public function, for messages.
        surfels: the surfels.
        lists: the tile lists: offsets, ids, and masks or None.
        size: height and width of the images and the side of a tile, in pixels.
        backgrounds: (..., D), or None.
        distorts: compute the distortion.
        engine: the engine.

    Returns:
        Colors, alphas, normals, distortion and median depth.
    """
    height, width, tile = size
    front = lists[0].shape[:-2]
    ids, starts, sizes = make_lists(function, *lists, size)
    images: list[Tensor] = []
    others: list[Tensor] = []
    for start in range(0, surfels.colors.shape[1], CHUNK):
        some = surfels._replace(colors=surfels.colors[:, start : start + CHUNK])
        op = get_op(
            "surfel_blend", engine, some.means2d, some.colors.shape[1], tile, distorts and not images, is_ordered()
        )
        image, *rest = op(*some, ids, starts, **sizes)
        others = others or rest
        images.append(image)
    left, normals, distort, median = others
    image = images[0] if len(images) == 1 else torch.cat(images, -1)
    cut = [y[:, :height, :width] for y in (image, left[..., None], normals, distort[..., None], median[..., None])]
    if backgrounds is not None:
        cut[0] = cut[0] + cut[1] * backgrounds.reshape(-1, 1, 1, image.shape[-1])
    cut[1] = 1 - cut[1]
    image, alpha, normals, distort, median = (y.reshape(*front, height, width, y.shape[-1]) for y in cut)
    return image, alpha, normals, distort, median


@register_maker("surfel_blend")
def _make_blend_op(lang: Any, fp: str, channels: int, tile_size: int, distorts: bool, ordered: bool) -> Any:
    kernel = kernels.surfel_blend(lang, fp=fp, channels=channels, tile_size=tile_size, distorts=distorts)
    outputs = f"image[v, h, w, {channels}], left[v, h, w], seen_normals[v, h, w, 3], distort[v, h, w], median[v, h, w]"
    spec = (
        f"means2d[m, 2], transforms[m, 9], colors[m, {channels}], normals[m, 3], depths[m], opacities[m],"
        f" ids[k]: i32, starts[t]: i32 -> {outputs}"
    )
    init = dict.fromkeys(("image", "left", "seen_normals", "distort", "median"), "empty")
    return steady(spec, kernel, init=init, adjoint="source", deterministic=ordered, name="surfel_blend")
