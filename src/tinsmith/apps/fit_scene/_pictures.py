"""What fit-scene leaves to look at: sheets of held-out views, a turntable, a curve, and a summary."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from .._film import as_pixels, decibels
from .._pictures import (
    BRIGHTEST_ERROR,
    error_map,
    picture,
    shaded,
    side_by_side,
    stacked,
    write_curve,
    write_files,
    write_loop,
    write_summary,
)
from ..scenes import Orbit
from ._evaluation import Evaluation
from ._field import COLOUR, DENSITY, GRID, HARMONICS
from ._training import Training

FILES = ("comparison.png", "depth.png", "opacity.png", "turntable.gif", "curve.png", "summary.json")

_SHOWN = 4  # held-out views in a sheet
_TURNTABLE_FRAMES = 48
_TURNTABLE_ZOOM, _TURNTABLE_SIDE = 2, 160  # twice the pictures: the field knows more than each of them; pixels at most
_MOST_RANKED = 1_000_000  # depths; torch ranks no more than 16 million
_SEEN_THROUGH = 0.05  # opacity below which a depth says nothing


def write_all(folder: Path, training: Training, found: Evaluation, seconds: float) -> list[Path]:
    """Write everything but the checkpoint; each file is whole or not there. Raises InputError."""
    history = training.history
    curves = {
        "loss": (range(len(history.losses)), history.losses),
        "PSNR held out, dB": (history.looked, history.psnrs),
    }
    frames = turntable(training)
    writers = (
        _comparison(found).save,
        _depths(found).save,
        _opacities(found).save,
        lambda path: write_loop(path, frames),
        lambda path: write_curve(path, curves, logarithmic="loss"),
        lambda path: write_summary(path, _facts(training, found, seconds)),
    )
    return write_files(folder, dict(zip(FILES, writers, strict=True)))


def _spread(count: int) -> list[int]:
    """Numbers of the views that are shown."""
    shown = min(_SHOWN, count)
    return [round(place * (count - 1) / max(1, shown - 1)) for place in range(shown)]


def _comparison(found: Evaluation) -> Image.Image:
    rows: list[Image.Image] = []
    for number in _spread(len(found.ours)):
        ours, truth = found.ours[number], found.truth[number]
        panels = {
            f"held-out view {number}": picture(truth),
            f"ours, {decibels(found.psnrs[number])}, SSIM {found.ssims[number]:.3f}": picture(ours),
            f"the error, {BRIGHTEST_ERROR:.0%} and more: bright": error_map(ours, truth),
        }
        rows.append(side_by_side(panels))
    return stacked(rows)


def _depths(found: Evaluation) -> Image.Image:
    """Near is yellow, far is violet; what is seen through is white."""
    mean = found.depth / found.opacity.clamp(min=1e-6)
    solid = found.opacity > _SEEN_THROUGH
    held = mean[solid] if solid.any() else mean.new_zeros(1)
    near, far = held[:: 1 + len(held) // _MOST_RANKED].quantile(torch.tensor([0.01, 0.99])).tolist()
    panels: dict[str, Image.Image] = {}
    for number in _spread(len(mean)):
        shown = shaded(1 - (mean[number] - near) / max(far - near, 1e-6), "viridis")
        white = Image.new("RGB", shown.size, "white")
        mask = picture(as_pixels(solid[number].float()))
        panels[f"view {number}: depth, {near:.2f} yellow to {far:.2f} violet"] = Image.composite(shown, white, mask)
    return side_by_side(panels)


def _opacities(found: Evaluation) -> Image.Image:
    shown = _spread(len(found.opacity))
    return side_by_side({f"view {number}: opacity": picture(as_pixels(found.opacity[number])) for number in shown})


def turntable(training: Training) -> list[Tensor]:
    """Pictures from once around the scene, (h, w, 3) uint8."""
    orbit, views = Orbit.of(training.dataset.train), training.dataset.train
    size = (training.dataset.width, training.dataset.height)
    zoom = min(_TURNTABLE_ZOOM, _TURNTABLE_SIDE / max(size))
    sides = (max(1, round(size[0] * zoom)), max(1, round(size[1] * zoom)))
    scale = torch.tensor([sides[0] / size[0], sides[1] / size[1], 1.0])
    intrinsics = views.intrinsics[0] * scale[:, None]
    poses = [orbit.pose(number / _TURNTABLE_FRAMES) for number in range(_TURNTABLE_FRAMES)]
    return [as_pixels(training.shown(pose, intrinsics, sides, "opengl").colour) for pose in poses]


def _facts(training: Training, found: Evaluation, seconds: float) -> dict[str, object]:
    options, dataset = training.options, training.dataset
    told = ("rays", "bound", "samples", "background", "distortion", "seed")
    return {
        "dataset": dataset.name,
        "width": dataset.width,
        "height": dataset.height,
        "views": len(dataset.train),
        "held_out": len(dataset.test),
        "psnr_db": found.psnr,
        "ssim": found.ssim,
        "psnr_db_by_view": dict(zip(dataset.test.names, found.psnrs, strict=True)),
        "step": training.step,
        "steps": training.steps,
        "seconds": seconds,
        "parameters": sum(part.numel() for part in training.scene.parameters()),
        "occupied": float(training.scene.grid.share),
        **{name: getattr(options, name) for name in told},
        "field": {"grid": GRID, "density": DENSITY, "harmonics": HARMONICS, "colour": COLOUR},
    }
