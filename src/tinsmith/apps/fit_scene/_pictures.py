"""The files of fit-scene, and the facts of its summary."""

from __future__ import annotations

from pathlib import Path

from .._pictures import write_files
from ..scenes import PICTURE_FILES, Evaluation, describe_scene, picture_writers, turntable
from ._field import COLOUR, DENSITY, GRID, HARMONICS
from ._training import Training

FILES = PICTURE_FILES


def write_all(folder: Path, training: Training, evaluation: Evaluation, seconds: float) -> list[Path]:
    """Write everything but the checkpoint; each file is complete or absent. Raises InputError."""
    facts = _facts(training, evaluation, seconds)
    return write_files(folder, picture_writers(training, evaluation, facts, turntable(training)))


def _facts(training: Training, evaluation: Evaluation, seconds: float) -> dict[str, object]:
    option_names = ("rays", "bound", "samples", "background", "distortion", "seed")
    return {
        **describe_scene(training, evaluation),
        "steps": training.steps,
        "seconds": seconds,
        "parameters": sum(part.numel() for part in training.scene.parameters()),
        "occupied": float(training.scene.grid.share),
        **{name: getattr(training.options, name) for name in option_names},
        "field": {"grid": GRID, "density": DENSITY, "harmonics": HARMONICS, "colour": COLOUR},
    }
