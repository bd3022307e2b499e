"""Checkpoints of runs that fit a scene: the trainer's state, the history, and the scene and options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _trainer_checkpoint
from ._views import Dataset


class SceneCheckpoints:
    """Writes and reads the checkpoints of one application.

    Args:
        format_name: what its files say that they are.
        options: names of the options that a resumed run must share with the one that was interrupted.
    """

    def __init__(self, format_name: str, options: Sequence[str]) -> None:
        self._format, self._options = format_name, options

    def save(self, training: Any) -> Path:
        """Write the state of a run. Raises InputError if it cannot be written."""
        options = training.options
        return _trainer_checkpoint.save(options.out, training, self._format, self._identity(training.dataset, options))

    def load(self, dataset: Dataset, options: Any) -> dict[str, Any]:
        """Read a checkpoint, and see that it is of this run.

        Raises:
            CheckpointError: there is none, it is broken, or it is of another run.
        """
        return _trainer_checkpoint.load(options.out, self._format, self._identity(dataset, options))

    def restore(self, training: Any, state: dict[str, Any]) -> None:
        """Put a run into the state that a checkpoint holds. Raises CheckpointError if it does not fit."""
        _trainer_checkpoint.restore(training.options.out, training, state)

    def _identity(self, dataset: Dataset, options: Any) -> dict[str, object]:
        shared = {name: getattr(options, name) for name in self._options}
        size = f"{dataset.width} x {dataset.height}"
        return {"dataset": dataset.name, "size": size, "pictures and cameras": dataset.digest, **shared}
