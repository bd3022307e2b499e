"""The checkpoint: the trainer's, with the history, and of which photograph and configuration it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import _trainer_checkpoint
from .._checkpoint import identity
from .._photo import Photo
from ._options import LearnOptions
from ._recipe import Recipe
from ._training import Training

_FORMAT = "tinsmith learn-image 1"


def save(training: Training, options: LearnOptions) -> Path:
    """Write the state of a run. Raises InputError if it cannot be written."""
    return _trainer_checkpoint.save(options.out, training, _FORMAT, _identity(training.photo, training.recipe, options))


def load(photo: Photo, recipe: Recipe, options: LearnOptions) -> dict[str, Any]:
    """Read a checkpoint, and check that it belongs to this run.

    Raises:
        CheckpointError: the checkpoint is missing, broken, or belongs to another run.
    """
    return _trainer_checkpoint.load(options.out, _FORMAT, _identity(photo, recipe, options))


def restore(training: Training, state: dict[str, Any], options: LearnOptions) -> None:
    """Restore a run from a checkpoint. Raises CheckpointError if it does not fit."""
    _trainer_checkpoint.restore(options.out, training, state)


def _identity(photo: Photo, recipe: Recipe, options: LearnOptions) -> dict[str, object]:
    return identity(photo) | recipe.identity() | {"seed": options.seed}
