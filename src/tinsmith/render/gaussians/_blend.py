"""Differentiable blending of projected Gaussians to images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import kernels
from ..._errors import ArgumentError, refusal
from .._ops import cast_to_single, get_op, register_maker
from .._packed import check_floats
from .._rule import steady
from ._checks import is_ordered, require_last, require_positive, require_shape

CHUNK = 8
"""Most channels that the kernel keeps in registers; more are blended in several launches."""


def rasterize_to_pixels(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    image_width: int,
    image_height: int,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    backgrounds: Tensor | None = None,
    masks: Tensor | None = None,
    packed: bool = False,
    absgrad: bool = False,
    *,
    engine: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Blend projected Gaussians, front to back, in the order of tile lists.

    For the Gaussians i of a pixel's tile, nearest first, with d from the Gaussian's center to the pixel's:

        alpha_i = min(0.999, opacity_i exp(-d^T conic_i d / 2))      left out if it is below 1 / 255
        T_i = product over j < i of (1 - alpha_j)
        color = sum of T_i alpha_i color_i + (1 - alpha) background
        alpha = sum of T_i alpha_i

    A pixel ends before the Gaussian that would reduce its transmittance to 1e-4 or less. Alpha thresholds and where a
    pixel ends are not differentiated: `docs/reference/conventions.md`.

    Args:
        means2d: (..., N, 2), or (nnz, 2) with `packed`, in pixels. Differentiable.
        conics: (..., N, 3) or (nnz, 3): xx, xy, yy of the inverse covariance. Differentiable.
        colors: (..., N, D) or (nnz, D), any number of channels. Differentiable.
        opacities: (..., N) or (nnz). Differentiable.
        image_width: width of the images in pixels.
        image_height: height of the images in pixels.
        tile_size: side of a tile in pixels.
        isect_offsets: (..., tile_height, tile_width), from `isect_offset_encode`.
        flatten_ids: (n_isects), from `isect_tiles`.
        backgrounds: (..., D), the color behind all Gaussians; None for 0. Differentiable.
        masks: (..., tile_height, tile_width), bool; a tile where it is False shows only the background.
        packed: tensors have a row for each visible Gaussian.
        absgrad: the backward pass sets `means2d.absgrad`: the gradient with the absolute value of each pixel's
            contribution.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        Colors (..., image_height, image_width, D) and alphas (..., image_height, image_width, 1).

    Raises:
        ShapeError: tensors do not fit each other.
        DtypeError: they are not all float32 or all float64.

    Example:
        >>> means2d, conics = torch.tensor([[[1.5, 0.5]]]), torch.tensor([[[1.0, 0.0, 1.0]]])
        >>> white, opacities = torch.ones(1, 1, 1), torch.tensor([[0.5]])
        >>> offsets, ids = torch.zeros(1, 1, 1).int(), torch.zeros(1).int()
        >>> blend = ts.render.gaussians.rasterize_to_pixels
        >>> colors, alphas = blend(means2d, conics, white, opacities, 3, 1, 16, offsets, ids)
        >>> colors[0, 0, :, 0]
        tensor([0.3033, 0.5000, 0.3033])
    """
    function = "rasterize_to_pixels"
    floats = {"means2d": means2d, "conics": conics, "colors": colors, "opacities": opacities}
    floats |= {} if backgrounds is None else {"backgrounds": backgrounds}
    floats = {name: cast_to_single(given) for name, given in floats.items()}
    check_floats(function, floats)
    image_width, image_height, tile_size = require_positive(
        function, image_width=image_width, image_height=image_height, tile_size=tile_size
    )
    front = tuple(isect_offsets.shape[:-2])
    check_gaussians(function, floats, front, packed)
    size = (image_height, image_width, tile_size)
    ids, starts, sizes = make_lists(function, isect_offsets, flatten_ids, masks, size)
    gaussians = [
        floats["means2d"].reshape(-1, 2),
        floats["conics"].reshape(-1, 3),
        floats["colors"].flatten(0, -2),
        floats["opacities"].reshape(-1),
    ]
    image, left = blend(gaussians, ids, starts, sizes, tile_size, engine)
    if absgrad:
        op = get_op("gaussian_absolute", engine, image, image.shape[-1], tile_size, is_ordered())
        # The caller's own tensor, in a list, so that autograd does not replace it.
        image, left = _WithAbsoluteGradient.apply(op, [means2d], *gaussians, ids, starts, image, left)
    image, left = image[:, :image_height, :image_width], left[:, :image_height, :image_width, None]
    if backgrounds is not None:
        image = image + left * floats["backgrounds"].reshape(-1, 1, 1, image.shape[-1])
    shape = (*front, image_height, image_width)
    return image.reshape(*shape, image.shape[-1]), (1 - left).reshape(*shape, 1)


def blend(
    gaussians: list[Tensor], ids: Tensor, starts: Tensor, sizes: dict[str, int], tile_size: int, engine: str | None
) -> tuple[Tensor, Tensor]:
    """Blend Gaussians to images made of whole tiles, without a background.

    Args:
        gaussians: means2d [m, 2], conics [m, 3], colors [m, D] and opacities [m].
        ids: [k], int32, the Gaussians of all tiles, from `make_lists`, as the next two.
        starts: [tiles + 1], int32, the first index into `ids` of each tile, and k.
        sizes: the sizes v (number of images), h and w (pixels) of the outputs.
        tile_size: side of a tile in pixels.
        engine: the engine.

    Returns:
        Colors [v, h, w, D] and remaining transmittance [v, h, w].
    """
    means2d, conics, colors, opacities = gaussians
    images, left = [], means2d.new_empty(0)
    for start in range(0, colors.shape[1], CHUNK):
        some = colors[:, start : start + CHUNK]
        op = get_op("gaussian_blend", engine, means2d, some.shape[1], tile_size, is_ordered())
        image, left = op(means2d, conics, some, opacities, ids, starts, **sizes)
        images.append(image)
    return images[0] if len(images) == 1 else torch.cat(images, -1), left


_LAST_SIZES = {"means2d": (2,), "conics": (3,), "ray_transforms": (3, 3), "opacities": (), "normals": (3,)}


def check_gaussians(function: str, floats: dict[str, Tensor], front: tuple[int, ...], packed: bool) -> None:
    """Raise an error unless tensors of projected Gaussians, by the names of arguments, fit each other and the images.

    Args:
        function: the name of the public function, for messages.
        floats: tensors of the names in `_LAST_SIZES`, "colors", and maybe "backgrounds".
        front: the sizes of the dims of the images.
        packed: whether one leading dim, nnz, replaces the images' and the Gaussians' dims.

    Raises:
        ShapeError: tensors do not fit each other.
        ArgumentError: the colors have no channel.
    """
    means2d, colors = floats["means2d"], floats["colors"]
    axes = "nnz" if packed else "..., N"
    require_last(function, "means2d", means2d, f"[{axes}, 2]", (2,))
    place = tuple(means2d.shape[:1]) if packed else (*front, means2d.shape[-2] if means2d.ndim > 1 else 0)
    for name, sizes in _LAST_SIZES.items():
        if name in floats:
            require_shape(function, name, floats[name], f"[{', '.join([axes, *map(str, sizes)])}]", (*place, *sizes))
    require_shape(function, "colors", colors, f"[{axes}, D]", (*place, colors.shape[-1] if colors.ndim else 0))
    if not colors.shape[-1]:
        rows = [("colors", f"[{axes}, D] = {tuple(colors.shape)}")]
        raise ArgumentError(refusal(f"`colors` of `{function}` has no channel", rows, "Pass at least one."))
    if "backgrounds" in floats:
        require_shape(function, "backgrounds", floats["backgrounds"], "[..., D]", (*front, colors.shape[-1]))


def make_lists(
    function: str, isect_offsets: Tensor, flatten_ids: Tensor, masks: Tensor | None, size: tuple[int, int, int]
) -> tuple[Tensor, Tensor, dict[str, int]]:
    """Make the tile lists that kernels read, without the Gaussians of tiles whose mask is False.

    Args:
        function: the name of the public function, for messages.
        isect_offsets: (..., tile_height, tile_width), the first index into `flatten_ids` of each tile.
        flatten_ids: (k), the Gaussians of all tiles, tile after tile.
        masks: shaped like `isect_offsets`, or None.
        size: height and width of the images and the side of a tile, in pixels.

    Returns:
        The Gaussians of all tiles [k], int32, the first index into them of each tile, and k, [tiles + 1], int32, and
        the sizes v (number of images), h and w (pixels) of images made of whole tiles.

    Raises:
        ShapeError: offsets or masks do not have one number per tile.
    """
    axes, (height, width, tile) = "[..., tile_height, tile_width]", size
    front, tiles = isect_offsets.shape[:-2], (-(-height // tile), -(-width // tile))
    require_shape(function, "isect_offsets", isect_offsets, axes, (*front, *tiles))
    starts = torch.empty(isect_offsets.numel() + 1, dtype=torch.int32, device=isect_offsets.device)
    starts[:-1] = isect_offsets.reshape(-1)
    starts[-1] = len(flatten_ids)
    ids, sizes = flatten_ids.int(), {"v": front.numel(), "h": tiles[0] * tile, "w": tiles[1] * tile}
    if masks is None:
        return ids, starts, sizes
    require_shape(function, "masks", masks, axes, isect_offsets.shape)
    counts, masks = starts.diff(), masks.reshape(-1)
    ids = ids[masks.repeat_interleave(counts)]
    starts[1:] = (counts * masks).cumsum(0)
    return ids, starts, sizes


class _WithAbsoluteGradient(torch.autograd.Function):
    """The identity on the image and the transmittance. Its backward pass sets `absgrad` of the Gaussians' centers."""

    @staticmethod
    def forward(ctx: Any, op: Any, centers: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.op, ctx.centers = op, centers
        ctx.save_for_backward(*tensors)
        image, left = tensors[-2:]
        return image.view_as(image), left.view_as(left)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (centers,) = ctx.centers
        with torch.no_grad():
            absolute_gradients = ctx.op(*(tensor.detach() for tensor in (*ctx.saved_tensors, *cotangents)))
        centers.absgrad = absolute_gradients.view(centers.shape)
        return (*[None] * (len(ctx.saved_tensors)), *cotangents)


@register_maker("gaussian_blend")
def _make_blend_op(lang: Any, fp: str, channels: int, tile_size: int, ordered: bool) -> Any:
    kernel = kernels.gaussian_blend(lang, fp=fp, channels=channels, tile_size=tile_size)
    spec = (
        f"means2d[m, 2], conics[m, 3], colors[m, {channels}], opacities[m], ids[k]: i32, starts[t]: i32"
        f" -> image[v, h, w, {channels}], left[v, h, w]"
    )
    init = {"image": "empty", "left": "empty"}
    return steady(spec, kernel, init=init, adjoint="source", deterministic=ordered, name="gaussian_blend")


@register_maker("gaussian_absolute")
def _make_absolute_op(lang: Any, fp: str, channels: int, tile_size: int, ordered: bool) -> Any:
    kernel = kernels.gaussian_absolute(lang, fp=fp, channels=channels, tile_size=tile_size)
    spec = (
        f"means2d[m, 2], conics[m, 3], colors[m, {channels}], opacities[m], ids[k]: i32, starts[t]: i32,"
        f" image[v, h, w, {channels}], left[v, h, w], c_image[v, h, w, {channels}], c_left[v, h, w] -> absolute[m, 2]"
    )
    return steady(spec, kernel, deterministic=ordered, name="gaussian_absolute")
