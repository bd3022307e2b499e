"""Parts that the rasterizations of Gaussians and surfels share: colors, render modes, intermediate results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._errors import ShapeError, refusal
from ._checks import RenderMode, require_choice
from ._harmonics import evaluate, require_degree
from ._projection import Pairs, Projection, Scene, find_indices
from ._tiles import isect_offset_encode, isect_tiles

FAINTEST = 1e-10
"""The smallest divisor of an expected depth."""


def divide_depth(images: Tensor, alphas: Tensor) -> Tensor:
    """Divide the last channel of images, the depth, by alpha."""
    return torch.cat([images[..., :-1], images[..., -1:] / alphas.clamp(min=FAINTEST)], -1)


@dataclass(frozen=True)
class Modes:
    """The render mode: whether colors, depths or expected depths are rendered."""

    render_mode: RenderMode

    def check(self, function: str) -> None:
        """Raise ArgumentError for an unknown mode."""
        require_choice(function, "render_mode", self.render_mode, RenderMode)

    @property
    def has_color(self) -> bool:
        return self.render_mode in ("RGB", "RGB+D", "RGB+ED")

    @property
    def has_depth(self) -> bool:
        return self.render_mode != "RGB"

    @property
    def is_expected(self) -> bool:
        return self.render_mode in ("ED", "RGB+ED")


def check_colors(function: str, scene: Scene, colors: Tensor, sh_degree: int | None) -> None:
    """Raise ShapeError unless there are colors, or coefficients, for each Gaussian or for each camera and Gaussian."""
    if sh_degree is not None:
        require_degree(function, "sh_degree", sh_degree, colors)
    batch, n, c = scene.shapes
    last = colors.shape[-1:] if sh_degree is None else colors.shape[-2:]
    words = "D" if sh_degree is None else "K, D"
    if tuple(colors.shape) not in ((*batch, n, *last), (*batch, c, n, *last)):
        rows = [("got", str(tuple(colors.shape))), ("expected", f"[..., N, {words}] or [..., C, N, {words}]")]
        rows += [("N", str(n)), ("C", str(c)), ("...", str(batch))]
        remedy = "Coefficients of spherical harmonics need `sh_degree`; colors go without."
        raise ShapeError(refusal(f"`colors` of `{function}` has the wrong shape", rows, remedy))


def compute_channels(
    scene: Scene,
    pairs: Pairs,
    colors: Tensor,
    sh_degree: int | None,
    backgrounds: Tensor | None,
    modes: Modes,
    engine: str | None,
    how: Projection,
) -> tuple[Tensor, Tensor | None]:
    """Compute the channels to blend for each pair: colors, depths or both by the render mode; and the background.

    Args:
        scene: the Gaussians and cameras.
        pairs: the pairs of an image and a Gaussian.
        colors: colors, or coefficients of harmonics, as in `rasterization`.
        sh_degree: the degree of the harmonics; None for colors.
        backgrounds: (..., C, D), or None.
        modes: the render mode.
        engine: the engine.
        how: the projection.

    Returns:
        Channels (p, X), and the background with X channels, or None.
    """
    depths = pairs.depths[:, None]
    if not modes.has_color:
        return depths, None
    shown = _compute_colors(scene, pairs, colors, sh_degree, engine, how)
    if modes.has_depth:
        shown = torch.cat([shown, depths], -1)
        if backgrounds is not None:
            backgrounds = torch.cat([backgrounds, torch.zeros_like(backgrounds[..., :1])], -1)
    return shown, backgrounds


def _compute_colors(
    scene: Scene, pairs: Pairs, colors: Tensor, sh_degree: int | None, engine: str | None, how: Projection
) -> Tensor:
    """Return the color of each pair, (p, D): gathered, or evaluated from spherical harmonics."""
    batch, n, _ = scene.shapes
    rows = pairs.rows
    if colors.ndim == len(batch) + (3 if sh_degree is None else 4):  # of each camera
        rows = pairs.images * n + find_indices(pairs, scene.shapes)[2].int()
    if sh_degree is None:
        return colors.flatten(0, -2).index_select(0, rows)
    cameras = torch.linalg.inv(scene.viewmats)[:, :3, 3]
    centers = scene.means.index_select(0, pairs.rows) if pairs.centers is None else pairs.centers
    directions = centers - cameras.index_select(0, pairs.images)
    masks = None if how.packed else pairs.radii[:, 0] > 0
    shown = evaluate(sh_degree, directions, colors.flatten(0, -3), rows, masks, engine)
    return (shown + 0.5).clamp(min=0.0)


def build_meta(
    scene: Scene,
    pairs: Pairs,
    others: dict[str, Tensor],
    how: Projection,
    tile_size: int,
    engine: str | None,
) -> dict[str, Any]:
    """Build the dict of intermediate results that `rasterization` returns, and compute its tile lists.

    `others` are further entries, with a row for each pair.
    """
    batch, n, c = scene.shapes
    n_images = len(scene.viewmats)
    tile_width, tile_height = -(-how.width // tile_size), -(-how.height // tile_size)
    values = {
        "radii": pairs.radii,
        "means2d": pairs.means2d,
        "depths": pairs.depths,
        **others,
    }
    if how.packed:
        batch_ids, camera_ids, gaussian_ids = find_indices(pairs, scene.shapes)
    else:
        batch_ids, camera_ids, gaussian_ids = None, None, None
        values = {name: value.view(*batch, c, n, *value.shape[1:]) for name, value in values.items()}
    tiles_per_gauss, isect_ids, flatten_ids = isect_tiles(
        values["means2d"],
        values["radii"],
        values["depths"],
        tile_size,
        tile_width,
        tile_height,
        packed=how.packed,
        n_images=n_images,
        image_ids=pairs.images,
        engine=engine,
    )
    offsets = isect_offset_encode(isect_ids, n_images, tile_width, tile_height)
    return {
        "batch_ids": batch_ids,
        "camera_ids": camera_ids,
        "gaussian_ids": gaussian_ids,
        **values,
        "tile_width": tile_width,
        "tile_height": tile_height,
        "tiles_per_gauss": tiles_per_gauss,
        "isect_ids": isect_ids,
        "flatten_ids": flatten_ids,
        "isect_offsets": offsets.view(*batch, c, tile_height, tile_width),
        "width": how.width,
        "height": how.height,
        "tile_size": tile_size,
        "n_batches": scene.shapes.n_batches,
        "n_cameras": c,
    }
