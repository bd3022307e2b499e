"""Tile lists: the Gaussians that overlap each tile of an image, nearest first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import kernels
from ..._errors import ArgumentError, refusal
from ..._integers import read_count
from .._ops import get_op, register_maker
from .._rule import steady
from ._checks import require_last, require_positive, require_shape

_DEPTH_BITS = 32
_ID_BITS = 63 - _DEPTH_BITS
"""The number of bits of a key for the image and the tile."""


@torch.no_grad()
def isect_tiles(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    tile_size: int,
    tile_width: int,
    tile_height: int,
    sort: bool = True,
    segmented: bool = False,
    packed: bool = False,
    n_images: int | None = None,
    image_ids: Tensor | None = None,
    gaussian_ids: Tensor | None = None,
    *,
    engine: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Find all pairs of a tile and a Gaussian whose bounding box overlaps the tile.

    The box is means2d - radii to means2d + radii. Pairs are sorted by image, then by tile, then by depth in float32;
    Gaussians of equal depth keep their order.

    Args:
        means2d: (..., N, 2), or (nnz, 2) with `packed`, in pixels.
        radii: (..., N, 2) or (nnz, 2), integers; a Gaussian with a radius of 0 is in no tile.
        depths: (..., N) or (nnz), not negative.
        tile_size: side of a tile in pixels.
        tile_width: tiles in a row.
        tile_height: rows of tiles.
        sort: sort the pairs; otherwise those of a Gaussian are next to each other.
        segmented: has no effect; in gsplat it selects another algorithm with the same result.
        packed: tensors have a row for each visible Gaussian.
        n_images: the number of images; needed with `packed`.
        image_ids: (nnz), integers, the image of each Gaussian; needed with `packed`.
        gaussian_ids: has no effect, as in gsplat.
        engine: the engine that sorts on the CPU, "taichi" or "quadrants"; None for a running engine, else an installed
            one.

    Returns:
        tiles_per_gauss (..., N) or (nnz), int32; isect_ids (n_isects), int64, the keys: image, tile, and 32 bits of the
        depth; flatten_ids (n_isects), int32, index of the Gaussian among all images, or among nnz. Not differentiable.

    Raises:
        ArgumentError: `packed` without `n_images` or `image_ids`, or more tiles than 31 bits can number.
        ShapeError: tensors do not fit each other.

    Example:
        >>> means2d, radii = torch.tensor([[16.0, 8.0], [4.0, 4.0]]), torch.tensor([[5, 5], [3, 3]])
        >>> _, _, flatten_ids = ts.render.gaussians.isect_tiles(means2d, radii, torch.tensor([2.0, 1.0]), 16, 2, 1)
        >>> flatten_ids
        tensor([1, 0, 0], dtype=torch.int32)
    """
    del segmented, gaussian_ids
    function = "isect_tiles"
    tile_size, tile_width, tile_height = require_positive(
        function, tile_size=tile_size, tile_width=tile_width, tile_height=tile_height
    )
    require_last(function, "means2d", means2d, "[..., N, 2]", (2,))
    require_shape(function, "radii", radii, "[..., N, 2]", means2d.shape)
    require_shape(function, "depths", depths, "[..., N]", means2d.shape[:-1])
    images, n_images = _find_images(function, means2d, packed, n_images, image_ids)
    _require_bits(function, n_images, tile_width * tile_height)
    low, span = _compute_boxes(means2d.reshape(-1, 2), radii.reshape(-1, 2), tile_size, tile_width, tile_height)
    counts = span.prod(-1, dtype=torch.int32)
    flat = depths.reshape(-1).float()
    order = counts.nonzero()[:, 0]
    if sort:
        order = order[flat[order].argsort(stable=True)]
    ids, tiles = _expand_pairs(order, counts, low, span, tile_width)
    del order, low, span
    tiles += images.index_select(0, ids).mul_(tile_width * tile_height)
    if sort:
        place = _sort_by_tile(tiles, n_images * tile_width * tile_height, depths, engine)
        ids, tiles = ids.index_select(0, place), tiles.index_select(0, place)
        del place
    keys = _make_keys(tiles, flat.index_select(0, ids), tile_width * tile_height)
    return counts.view(depths.shape), keys, ids


@torch.no_grad()
def isect_offset_encode(isect_ids: Tensor, n_images: int, tile_width: int, tile_height: int) -> Tensor:
    """Compute the index at which the pairs of each tile begin.

    Args:
        isect_ids: (n_isects), sorted, from `isect_tiles`.
        n_images: the number of images.
        tile_width: tiles in a row.
        tile_height: rows of tiles.

    Returns:
        (n_images, tile_height, tile_width), int32. The pairs of a tile end where those of the next begin.

    Example:
        >>> means2d, radii = torch.tensor([[16.0, 8.0], [4.0, 4.0]]), torch.tensor([[5, 5], [3, 3]])
        >>> _, isect_ids, _ = ts.render.gaussians.isect_tiles(means2d, radii, torch.tensor([2.0, 1.0]), 16, 2, 1)
        >>> ts.render.gaussians.isect_offset_encode(isect_ids, 1, 2, 1)
        tensor([[[0, 2]]], dtype=torch.int32)
    """
    tile_width, tile_height = require_positive("isect_offset_encode", tile_width=tile_width, tile_height=tile_height)
    n_images = read_count("n_images", "`isect_offset_encode`", n_images)
    n_tiles = tile_width * tile_height
    bits = n_tiles.bit_length()
    upper = isect_ids >> _DEPTH_BITS
    tiles = (upper >> bits).mul_(n_tiles).add_(upper.bitwise_and_((1 << bits) - 1))
    all_tiles = torch.arange(n_images * n_tiles, device=isect_ids.device)
    return torch.searchsorted(tiles, all_tiles).int().view(n_images, tile_height, tile_width)


def _find_images(
    function: str, means2d: Tensor, packed: bool, n_images: int | None, image_ids: Tensor | None
) -> tuple[Tensor, int]:
    """Return the image of each Gaussian, (N of all images) or (nnz) int32, and the number of images.

    Raises:
        ArgumentError, ShapeError: `n_images` or `image_ids` is missing or does not fit.
    """
    if packed:
        if n_images is None or image_ids is None:
            rows = [("n_images", str(n_images)), ("image_ids", type(image_ids).__name__)]
            headline = f"`{function}` needs the images of packed Gaussians"
            raise ArgumentError(refusal(headline, rows, "Pass both `n_images` and `image_ids`."))
        require_shape(function, "image_ids", image_ids, "[nnz]", means2d.shape[:1])
        return image_ids.int(), read_count("n_images", f"`{function}`", n_images)
    n_images = means2d.shape[:-2].numel()
    images = torch.arange(n_images, dtype=torch.int32, device=means2d.device)
    return images.repeat_interleave(means2d.shape[-2]), n_images


def _require_bits(function: str, n_images: int, n_tiles: int) -> None:
    if n_images.bit_length() + n_tiles.bit_length() > _ID_BITS:
        rows = [("images", str(n_images)), ("tiles of each", str(n_tiles)), ("bits for both", str(_ID_BITS))]
        remedy = "Render fewer images at once, or smaller ones."
        raise ArgumentError(refusal(f"`{function}` has more tiles than its sort keys can number", rows, remedy))


# These lists determine the peak memory of a training step with many Gaussians. So they are int32, parts are freed
# as soon as they have been used, and results are computed in place where possible.


def _compute_boxes(
    means2d: Tensor, radii: Tensor, tile_size: int, tile_width: int, tile_height: int
) -> tuple[Tensor, Tensor]:
    """Compute the first tile of each Gaussian and the number of tiles that it overlaps along x and y: (g, 2), int32."""
    center, reach = means2d / tile_size, radii / tile_size
    limits = means2d.new_tensor([tile_width, tile_height])
    low = (center - reach).floor_().clamp_(min=torch.zeros_like(limits), max=limits).int()
    high = center.add_(reach).ceil_().clamp_(min=torch.zeros_like(limits), max=limits).int()
    return low, high.sub_(low).mul_((radii > 0).all(-1, keepdim=True))


def _expand_pairs(order: Tensor, counts: Tensor, low: Tensor, span: Tensor, tile_width: int) -> tuple[Tensor, Tensor]:
    """Return a pair for each tile of each Gaussian: the Gaussian, and the number of the tile in its image, both int32.

    Pairs are in the order of the Gaussians in `order`.
    """
    counts = counts[order]
    before = counts.cumsum(0).sub_(counts)
    ids = order.int().repeat_interleave(counts)
    down = torch.arange(len(ids), dtype=torch.int32, device=order.device)
    down -= before.int().repeat_interleave(counts)
    columns = span[:, 0].index_select(0, ids)
    across = down % columns
    down = down.div_(columns, rounding_mode="floor")
    del columns
    down.add_(low[:, 1].index_select(0, ids)).mul_(tile_width)
    return ids, down.add_(across).add_(low[:, 0].index_select(0, ids))


def _sort_by_tile(tiles: Tensor, count: int, like: Tensor, engine: str | None) -> Tensor:
    """Return the permutation that sorts pairs by tile, stably, int32 on the CPU. Tiles are less than `count`."""
    if tiles.device.type != "cpu":
        return tiles.argsort(stable=True)
    goes_to, _ = get_op("gaussian_sort", engine, like)(tiles, ends=count + 1)
    place = torch.empty_like(goes_to)
    return place.index_copy_(0, goes_to.long(), torch.arange(len(tiles), dtype=torch.int32))


def _make_keys(tiles: Tensor, depths: Tensor, n_tiles: int) -> Tensor:
    image = tiles.div(n_tiles, rounding_mode="floor")
    tiles = tiles - image * n_tiles
    keys = image.long()
    del image
    keys.bitwise_left_shift_(n_tiles.bit_length()).bitwise_or_(tiles)
    keys.bitwise_left_shift_(_DEPTH_BITS)
    # The bits of positive floats have the order of the numbers. The mask is for negative ones, whose sign `long()`
    # would extend over the bits of image and tile.
    return keys.bitwise_or_(depths.view(torch.int32).long().bitwise_and_(0xFFFFFFFF))


@register_maker("gaussian_sort")
def _make_sort_op(lang: Any, _fp: str) -> Any:
    spec = "cells[n]: i32 -> place[n]: i32, start[ends]: i32"
    scratch = "tally[ends - 1]: i32"
    kernel = kernels.counting_sort(lang, cells_dtype="i32")
    return steady(spec, kernel, scratch=scratch, init={"place": "empty"}, name="gaussian_sort")
