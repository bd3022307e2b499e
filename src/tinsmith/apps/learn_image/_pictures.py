"""The files of learn-image: pictures, a film, curves, and a summary."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from .._film import as_pixels, decibels, psnr_of_pixels
from .._pictures import (
    BRIGHTEST_ERROR,
    error_map,
    picture,
    side_by_side,
    write_curve,
    write_files,
    write_film,
    write_summary,
)
from ._training import Training

FILES = ("learned.png", "error.png", "comparison.png", "learning.gif", "curve.png", "summary.json")


def write_all(folder: Path, training: Training, image: Tensor, seconds: float) -> list[Path]:
    """Write everything but the checkpoint; each file is complete or absent. Raises InputError."""
    learned = as_pixels(image)
    history, photo = training.history, training.photo
    map_of_errors = error_map(learned, photo.pixels)
    panels = {
        "the photograph": picture(photo.pixels),
        f"learned, {decibels(psnr_of_pixels(learned, photo.pixels))}": picture(learned),
        f"error; bright: {BRIGHTEST_ERROR:.0%} and more": map_of_errors,
    }
    curves = {
        "loss": (range(len(history.losses)), history.losses),
        "PSNR, dB": ([*history.looked, training.step], [*history.psnrs, psnr_of_pixels(learned, photo.pixels)]),
    }
    writers = (
        picture(learned).save,
        map_of_errors.save,
        side_by_side(panels).save,
        lambda path: write_film(path, history.frames, learned),
        lambda path: write_curve(path, curves, logarithmic="loss"),
        lambda path: write_summary(path, _facts(training, learned, seconds)),
    )
    return write_files(folder, dict(zip(FILES, writers, strict=True)))


def _facts(training: Training, learned: Tensor, seconds: float) -> dict[str, object]:
    recipe, photo = training.recipe, training.photo
    grid = recipe.grid_shape
    return {
        "photograph": photo.name,
        "width": photo.width,
        "height": photo.height,
        "psnr_db": psnr_of_pixels(learned, photo.pixels),
        "step": training.step,
        "steps": training.steps,
        "seconds": seconds,
        "parameters": training.n_params,
        "configuration": recipe.name,
        "grid_shape": None if grid is None else list(grid),
        "batch_size": recipe.batch_size,
        **{part: getattr(recipe, part).config() for part in ("loss", "optimizer", "encoding", "network")},
    }
