"""Alpha blending of sorted Gaussians over tile lists, front to back, with a threshold and an early stop.

This is what splatting of Gaussians is. The gradient by hand is that of the splatting libraries: the transmittance is
divided out from the last pair of a pixel to its first.

Annotations here are values that the engines read: this file must not say `from __future__ import annotations`.
"""

# pyright: reportInvalidTypeForm=false

from typing import Any

import torch
from torch import Tensor

SPEC = "mean[n, 2], conic[n, 3], color[n, 3], opacity[n], ids[m]: i32, starts[t]: i32 -> image[h, w, 3]"
TILE = 16
SIDE = 64
FAINTEST, MOST, OPAQUE = 1 / 255, 0.99, 1e-4


def blend(lang: Any) -> Any:
    """Build the kernel that blends the Gaussians of each pixel's tile."""
    array = lang.types.ndarray()

    @lang.kernel
    def blend(mean: array, conic: array, color: array, opacity: array, ids: array, starts: array, image: array):
        for y, x in lang.ndrange(image.shape[0], image.shape[1]):
            tile = (y // TILE) * (image.shape[1] // TILE) + x // TILE
            t = 1.0
            red, green, blue = 0.0, 0.0, 0.0
            for k in range(starts[tile], starts[tile + 1]):
                i = ids[k]
                dx, dy = x + 0.5 - mean[i, 0], y + 0.5 - mean[i, 1]
                power = -0.5 * (conic[i, 0] * dx * dx + conic[i, 2] * dy * dy) - conic[i, 1] * dx * dy
                alpha = lang.min(MOST, opacity[i] * lang.exp(power))
                if alpha > FAINTEST:
                    weight = alpha * t
                    red += weight * color[i, 0]
                    green += weight * color[i, 1]
                    blue += weight * color[i, 2]
                    t *= 1.0 - alpha
                    if t < OPAQUE:
                        break
            image[y, x, 0], image[y, x, 1], image[y, x, 2] = red, green, blue

    return blend


def blend_by_hand(lang: Any) -> Any:
    """Build the gradient of `blend`, from the last blended pair to the first; the transmittance is recovered by
    division.
    """
    array = lang.types.ndarray()

    @lang.kernel
    def blend_by_hand(
        mean: array,
        conic: array,
        color: array,
        opacity: array,
        ids: array,
        starts: array,
        grad_image: array,
        grad_mean: array,
        grad_conic: array,
        grad_color: array,
        grad_opacity: array,
    ):
        for y, x in lang.ndrange(grad_image.shape[0], grad_image.shape[1]):
            tile = (y // TILE) * (grad_image.shape[1] // TILE) + x // TILE
            red, green, blue = grad_image[y, x, 0], grad_image[y, x, 1], grad_image[y, x, 2]
            t = 1.0
            last = starts[tile]
            for k in range(starts[tile], starts[tile + 1]):
                i = ids[k]
                dx, dy = x + 0.5 - mean[i, 0], y + 0.5 - mean[i, 1]
                power = -0.5 * (conic[i, 0] * dx * dx + conic[i, 2] * dy * dy) - conic[i, 1] * dx * dy
                alpha = lang.min(MOST, opacity[i] * lang.exp(power))
                if alpha > FAINTEST:
                    t *= 1.0 - alpha
                    last = k + 1
                    if t < OPAQUE:
                        break
            behind = 0.0
            for back in range(last - starts[tile]):
                i = ids[last - 1 - back]
                dx, dy = x + 0.5 - mean[i, 0], y + 0.5 - mean[i, 1]
                power = -0.5 * (conic[i, 0] * dx * dx + conic[i, 2] * dy * dy) - conic[i, 1] * dx * dy
                bell = lang.exp(power)
                alpha = lang.min(MOST, opacity[i] * bell)
                if alpha > FAINTEST:
                    t /= 1.0 - alpha
                    weight = alpha * t
                    grad_color[i, 0] += red * weight
                    grad_color[i, 1] += green * weight
                    grad_color[i, 2] += blue * weight
                    light = red * color[i, 0] + green * color[i, 1] + blue * color[i, 2]
                    slope = (light - behind) * t
                    behind = light * alpha + behind * (1.0 - alpha)
                    if opacity[i] * bell < MOST:
                        grad_opacity[i] += slope * bell
                        pull = slope * opacity[i] * bell
                        grad_conic[i, 0] -= 0.5 * pull * dx * dx
                        grad_conic[i, 1] -= pull * dx * dy
                        grad_conic[i, 2] -= 0.5 * pull * dy * dy
                        grad_mean[i, 0] += pull * (conic[i, 0] * dx + conic[i, 1] * dy)
                        grad_mean[i, 1] += pull * (conic[i, 2] * dy + conic[i, 1] * dx)

    return blend_by_hand


def blend_by_tiles(
    mean: Tensor, conic: Tensor, color: Tensor, opacity: Tensor, ids: Tensor, starts: Tensor, *, h: int, w: int
) -> Tensor:
    """Blend in plain torch, one tile at a time: all pairs of the tile, without an early stop."""
    rows = []
    places = torch.arange(TILE, dtype=mean.dtype) + 0.5
    bounds = starts.tolist()
    for row in range(h // TILE):
        tiles = []
        for column in range(w // TILE):
            tile = row * (w // TILE) + column
            i = ids[bounds[tile] : bounds[tile + 1]].long()
            dx = (column * TILE + places)[None, :, None] - mean[i, 0]
            dy = (row * TILE + places)[:, None, None] - mean[i, 1]
            power = -0.5 * (conic[i, 0] * dx * dx + conic[i, 2] * dy * dy) - conic[i, 1] * dx * dy
            alpha = (opacity[i] * power.exp()).clamp(max=MOST)
            alpha = torch.where(alpha > FAINTEST, alpha, 0.0)
            through = torch.cumprod(1.0 - alpha, -1)
            before = torch.cat([torch.ones_like(through[..., :1]), through[..., :-1]], -1)
            weight = torch.where(before >= OPAQUE, alpha * before, 0.0)
            tiles.append(weight @ color[i])
        rows.append(torch.cat(tiles, 1))
    return torch.cat(rows, 0)


def sorted_gaussians(is_small: bool, side: int = SIDE, count: int = 2000) -> tuple[Tensor, ...]:
    """Draw Gaussians of a few pixels all over the picture, sorted by depth, with the list of each tile.

    A small picture is a single tile with 12 of them; others have `side` x `side` pixels and `count` Gaussians.
    """
    n, side = (12, TILE) if is_small else (count, side)
    mean, scale = torch.rand(n, 2) * side, 1.0 + 2.0 * torch.rand(n)
    conic = torch.stack([1 / scale**2, 0.1 / scale**2 * torch.randn(n), 1 / scale**2], 1)
    lists = [
        torch.nonzero(((mean - torch.tensor([x, y]) - TILE / 2).abs() < TILE / 2 + 3.0 * scale[:, None]).all(1))[:, 0]
        for y in range(0, side, TILE)
        for x in range(0, side, TILE)
    ]
    starts = torch.tensor([0, *(len(one) for one in lists)]).cumsum(0)
    opacity = 0.2 + 0.7 * torch.rand(n)
    return mean, conic, torch.rand(n, 3), opacity, torch.cat(lists).int(), starts.int()


def sides(is_small: bool) -> dict[str, int]:
    """Return the height and width of the picture."""
    side = TILE if is_small else SIDE
    return {"h": side, "w": side}
