"""The checkpoint: Gaussians, optimizers and history, and of which scene and options it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import _trained
from ..scenes import Dataset
from ._options import SplatOptions
from ._training import Training

_FORMAT = "tinsmith fit-splats 1"
_OPTIONS = ("gaussians", "most", "degree", "strategy", "background", "seed")


def save(training: Training) -> Path:
    """Write the state of a run. Raises InputError if it cannot be written."""
    options = training.options
    return _trained.save(options.out, training, _FORMAT, _identity(training.dataset, options))


def load(dataset: Dataset, options: SplatOptions) -> dict[str, Any]:
    """Read a checkpoint, and see that it is of this run.

    Raises:
        CheckpointError: there is none, it is broken, or it is of another run.
    """
    return _trained.load(options.out, _FORMAT, _identity(dataset, options))


def restore(training: Training, state: dict[str, Any]) -> None:
    """Put a run into the state that a checkpoint holds. Raises CheckpointError if it does not fit."""
    _trained.restore(training.options.out, training, state)


def _identity(dataset: Dataset, options: SplatOptions) -> dict[str, object]:
    told = {name: getattr(options, name) for name in _OPTIONS}
    size = f"{dataset.width} x {dataset.height}"
    return {"dataset": dataset.name, "size": size, "pictures and cameras": dataset.digest, **told}
