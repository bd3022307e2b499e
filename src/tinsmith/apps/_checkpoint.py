"""Checkpoints of all apps: their path, and the errors for one that is missing, broken or of another run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._errors import CheckpointError, refusal
from ..nn import read_checkpoint, write_checkpoint
from ._training import Training

FILE = "checkpoint.safetensors"

_NAMES = ("photograph", "dataset")

_LONG = 40  # letters
_GLIMPSE = 12
_KEY = 60  # a key of a configuration with its value

_AFRESH = "Pass --overwrite instead of --resume to start afresh."


class Checkpoints:
    """Writes and reads the checkpoints of a run: the state of the trainer and the training, and what identifies the
    run.

    Args:
        folder: the run's output folder.
        form: the name of the file format.
        run: the facts that a resumed run must share with the interrupted one.
    """

    def __init__(self, folder: Path, form: str, run: Mapping[str, object]) -> None:
        self.path = folder / FILE
        self._form, self._run = form, run
        self._state: dict[str, Any] | None = None

    def save(self, training: Training[Any]) -> Path:
        """Write the state of a run to the checkpoint file; return its path. Raise InputError if it cannot be
        written.
        """
        extra = {"format": self._form, "run": dict(self._run), "training": training.state()}
        write_checkpoint(self.path, {"trainer": training.learner.trainer.state_dict(), "extra": extra})
        return self.path

    def load(self) -> None:
        """Read the checkpoint, and check that it belongs to this run.

        Raises:
            CheckpointError: the checkpoint is missing, broken, or belongs to another run.
        """
        require_checkpoint(self.path)
        try:
            state = read_checkpoint(self.path)
        except CheckpointError as cause:
            # Raise the same error with this command's remedy.
            raise make_broken_error(self.path, cause.reason) from cause
        extra = state.get("extra")
        if not isinstance(extra, dict) or extra.get("format") != self._form:
            raise make_broken_error(self.path, f"its format is not {self._form!r}")
        require_same(self.path, "run", extra["run"], self._run)
        self._state = state

    def restore(self, training: Training[Any]) -> None:
        """Restore a run from the loaded checkpoint, if there is one. Raise CheckpointError if it does not fit."""
        if self._state is None:
            return
        try:
            training.learner.trainer.load_state_dict(self._state["trainer"])
            training.restore(self._state["extra"]["training"])
        except CheckpointError:
            raise
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as cause:
            raise make_broken_error(self.path, repr(cause)) from cause


def require_checkpoint(path: Path) -> None:
    """Raise CheckpointError if there is no checkpoint file."""
    if not path.is_file():
        headline = "there is no checkpoint to resume from"
        raise CheckpointError(refusal(headline, [("file", str(path))], "Leave out --resume to start afresh."))


def make_broken_error(path: Path, reason: str) -> CheckpointError:
    """Build the error for a checkpoint that cannot be used."""
    return CheckpointError(refusal("the checkpoint is broken", [("file", str(path)), ("because", reason)], _AFRESH))


def require_same(path: Path, what: str, theirs: Mapping[str, object], ours: Mapping[str, object]) -> None:
    """Raise CheckpointError unless a checkpoint belongs to the same run, called `what` in messages.

    The names of the photograph and the dataset may differ, since files may be renamed; their content must be the same.
    """
    if all(theirs.get(key) == ours[key] for key in ours if key not in _NAMES):
        return
    rows: list[tuple[str, ...]] = [("file", str(path))]
    for key, value in ours.items():
        saved, wanted = _shorten_pair(str(theirs.get(key)), str(value))
        rows.append((key, saved, "" if theirs.get(key) == value else f"this {what} has {wanted}"))
    remedy = "Resume with the input and options that it was made with, or pass --overwrite instead to start afresh."
    raise CheckpointError(refusal(f"the checkpoint belongs to another {what}", rows, remedy))


def _shorten_pair(saved: str, wanted: str) -> list[str]:
    """Cut two long values of a message so that they begin where they first differ."""
    same = next((place for place, pair in enumerate(zip(saved, wanted, strict=False)) if pair[0] != pair[1]), 0)
    begin = saved.rfind(", ", 0, same) + len(", ") if ", " in saved[:same] else 0
    return [_shorten(text, begin) for text in (saved, wanted)]


def _shorten(text: str, begin: int) -> str:
    if len(text) < _LONG:
        return text
    size = _KEY if begin else _GLIMPSE
    return "..." * (begin > 0) + text[begin : begin + size] + "..." * (begin + size < len(text))
