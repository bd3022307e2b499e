"""The checkpoint: the trainer's, with the history, and of which photograph and configuration it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..._errors import CheckpointError
from ...nn import read_checkpoint
from .._checkpoint import FILE, broken, existing, identity, require_same
from .._photo import Photo
from ._options import LearnOptions
from ._recipe import Recipe
from ._training import Training

_FORMAT = "tinsmith learn-image 1"


def save(training: Training, options: LearnOptions) -> Path:
    """Write the state of a run. Raises InputError if it cannot be written."""
    path = options.out / FILE
    told = {"format": _FORMAT, "run": _identity(training.photo, training.recipe, options)}
    training.trainer.save(path, told | {"training": training.state()})
    return path


def load(photo: Photo, recipe: Recipe, options: LearnOptions) -> dict[str, Any]:
    """Read a checkpoint, and see that it is of this run.

    Raises:
        CheckpointError: there is none, it is broken, or it is of another run.
    """
    path = existing(options.out)
    state = _read(path)
    extra = state.get("extra")
    if not isinstance(extra, dict) or extra.get("format") != _FORMAT:
        raise broken(path, f"its format is not {_FORMAT!r}")
    require_same(path, "run", extra["run"], _identity(photo, recipe, options))
    return state


def restore(training: Training, state: dict[str, Any], options: LearnOptions) -> None:
    """Put a run into the state that a checkpoint holds. Raises CheckpointError if it does not fit."""
    try:
        training.trainer.load_state_dict(state["trainer"])
        training.restore(state["extra"]["training"])
    except CheckpointError:
        raise
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as cause:
        raise broken(options.out / FILE, repr(cause)) from cause


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_checkpoint(path)
    except CheckpointError as cause:  # the same, with this command's way out
        raise broken(path, str(cause).partition("because")[2].strip()) from cause


def _identity(photo: Photo, recipe: Recipe, options: LearnOptions) -> dict[str, object]:
    return identity(photo) | recipe.identity() | {"seed": options.seed}
