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
    _check_shapes(function, floats, front, packed)
    tiles = (-(-image_height // tile_size), -(-image_width // tile_size))
    require_shape(function, "isect_offsets", isect_offsets, "[..., tile_height, tile_width]", (*front, *tiles))
    starts, ids = make_lists(isect_offsets, flatten_ids)
    if masks is not None:
        require_shape(function, "masks", masks, "[..., tile_height, tile_width]", isect_offsets.shape)
        starts, ids = drop_masked_tiles(starts, ids, masks.reshape(-1))
    gaussians = [
        floats["means2d"].reshape(-1, 2),
        floats["conics"].reshape(-1, 3),
        floats["colors"].flatten(0, -2),
        floats["opacities"].reshape(-1),
    ]
    sizes = {"v": torch.Size(front).numel(), "h": tiles[0] * tile_size, "w": tiles[1] * tile_size}
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
        ids: [k], int32, the Gaussians of all tiles, tile after tile.
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


def _check_shapes(function: str, floats: dict[str, Tensor], front: tuple[int, ...], packed: bool) -> None:
    means2d, colors = floats["means2d"], floats["colors"]
    require_last(function, "means2d", means2d, "[nnz, 2]" if packed else "[..., N, 2]", (2,))
    place = means2d.shape[:-1]
    axes = "nnz" if packed else "..., N"
    expected = place[:1] if packed else (*front, means2d.shape[-2] if means2d.ndim > 1 else 0)
    require_shape(function, "means2d", means2d, f"[{axes}, 2]", (*expected, 2))
    require_shape(function, "conics", floats["conics"], f"[{axes}, 3]", (*expected, 3))
    require_shape(function, "opacities", floats["opacities"], f"[{axes}]", expected)
    require_shape(function, "colors", colors, f"[{axes}, D]", (*expected, colors.shape[-1] if colors.ndim else 0))
    if not colors.shape[-1]:
        rows = [("colors", f"[{axes}, D] = {tuple(colors.shape)}")]
        raise ArgumentError(refusal(f"`colors` of `{function}` has no channel", rows, "Pass at least one."))
    if "backgrounds" in floats:
        require_shape(function, "backgrounds", floats["backgrounds"], "[..., D]", (*front, colors.shape[-1]))


def make_lists(isect_offsets: Tensor, flatten_ids: Tensor) -> tuple[Tensor, Tensor]:
    starts = torch.empty(isect_offsets.numel() + 1, dtype=torch.int32, device=isect_offsets.device)
    starts[:-1] = isect_offsets.reshape(-1)
    starts[-1] = len(flatten_ids)
    return starts, flatten_ids.int()


def drop_masked_tiles(starts: Tensor, ids: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tile lists without the Gaussians of tiles whose mask is False: the new starts and ids."""
    counts = starts.diff()
    kept = masks.repeat_interleave(counts)
    starts = starts.clone()
    starts[1:] = (counts * masks).cumsum(0)
    return starts, ids[kept]


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
