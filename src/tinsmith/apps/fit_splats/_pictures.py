"""The files of fit-splats: the pictures of all scenes, a turntable of depths, and the Gaussians for other viewers."""

from __future__ import annotations

from pathlib import Path

from ...render.gaussians import save_ply
from .._pictures import write_files, write_loop
from ..scenes import PICTURE_FILES, Evaluation, depth_frames, describe_scene, picture_writers, turntable
from ._training import Training

FILES = (*PICTURE_FILES, "depth.gif", "splats.ply")


def write_all(folder: Path, training: Training, evaluation: Evaluation, seconds: float) -> list[Path]:
    """Write everything but the checkpoint; each file is complete or absent. Raises InputError."""
    frames = turntable(training)
    depths = depth_frames(frames)
    writers = picture_writers(training, evaluation, _facts(training, evaluation, seconds), frames)
    writers |= {
        "depth.gif": lambda path: write_loop(path, depths),
        "splats.ply": lambda path: save_ply(path, training.trainer.params),
    }
    return write_files(folder, writers)


def _facts(training: Training, evaluation: Evaluation, seconds: float) -> dict[str, object]:
    option_names = ("degree", "strategy", "background", "seed", "most")
    return {
        **describe_scene(training, evaluation),
        "steps": training.steps,
        "seconds": seconds,
        "gaussians": len(training.trainer),
        **{name: getattr(training.options, name) for name in option_names},
    }
