"""The checkpoint of an app that trains with `nn.Trainer`: states of trainer and training, and the run's identity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from .._errors import CheckpointError
from ..nn import read_checkpoint
from ._checkpoint import FILE, make_broken_error, require_checkpoint, require_same


class HasState(Protocol):
    """What `nn.Trainer` has for checkpoints."""

    def save(self, path: Any, extra: Any = None, /) -> object: ...

    def load_state_dict(self, state: Any, /) -> object: ...


class Resumable(Protocol):
    """A training whose state is the trainer's and a nest of its own."""

    @property
    def trainer(self) -> HasState: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


def save(folder: Path, training: Resumable, form: str, run: Mapping[str, object]) -> Path:
    """Write the state of a run, which `run` identifies. Raises InputError if it cannot be written."""
    path = folder / FILE
    training.trainer.save(path, {"format": form, "run": dict(run), "training": training.state()})
    return path


def load(folder: Path, form: str, run: Mapping[str, object]) -> dict[str, Any]:
    """Read a checkpoint, and check that it belongs to this run.

    Raises:
        CheckpointError: the checkpoint is missing, broken, or belongs to another run.
    """
    path = require_checkpoint(folder)
    state = _read(path)
    extra = state.get("extra")
    if not isinstance(extra, dict) or extra.get("format") != form:
        raise make_broken_error(path, f"its format is not {form!r}")
    require_same(path, "run", extra["run"], run)
    return state


def restore(folder: Path, training: Resumable, state: dict[str, Any]) -> None:
    """Restore a run from a checkpoint. Raises CheckpointError if it does not fit."""
    try:
        training.trainer.load_state_dict(state["trainer"])
        training.restore(state["extra"]["training"])
    except CheckpointError:
        raise
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as cause:
        raise make_broken_error(folder / FILE, repr(cause)) from cause


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_checkpoint(path)
    except CheckpointError as cause:
        # The same error, with this command's remedy.
        raise make_broken_error(path, str(cause).partition("because")[2].strip()) from cause
