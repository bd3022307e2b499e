"""Checkpoints of all apps: their path, and the errors for a missing, broken or foreign one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .._errors import CheckpointError, refusal
from ._photo import Photo

FILE = "checkpoint.safetensors"

_NAMES = ("photograph", "dataset")

_LONG = 40  # letters
_GLIMPSE = 12
_KEY = 60  # a key of a configuration with its value

_AFRESH = "Leave out --resume to start afresh; that overwrites it."


def require_checkpoint(folder: Path) -> Path:
    """The path of the checkpoint in a folder. Raises CheckpointError if there is none."""
    path = folder / FILE
    if not path.is_file():
        headline = "there is no checkpoint to resume from"
        raise CheckpointError(refusal(headline, [("file", str(path))], "Leave out --resume to start afresh."))
    return path


def make_broken_error(path: Path, reason: str) -> CheckpointError:
    """The error for a checkpoint that cannot be used."""
    return CheckpointError(refusal("the checkpoint is broken", [("file", str(path)), ("because", reason)], _AFRESH))


def identity(photo: Photo) -> dict[str, object]:
    """The entries of a checkpoint that identify its photograph."""
    return {"photograph": photo.name, "size": f"{photo.width} x {photo.height}", "pixels": photo.digest}


def require_same(path: Path, what: str, theirs: Mapping[str, object], ours: Mapping[str, object]) -> None:
    """Raise CheckpointError unless a checkpoint belongs to this fit (or `what`), up to its input's name.

    A photograph may be renamed: its pixels must be the same; its name is for the message.
    """
    if all(theirs.get(key) == ours[key] for key in ours if key not in _NAMES):
        return
    rows: list[tuple[str, ...]] = [("file", str(path))]
    for key, value in ours.items():
        saved, wanted = _shorten_pair(str(theirs.get(key)), str(value))
        rows.append((key, saved, "" if theirs.get(key) == value else f"this {what} has {wanted}"))
    remedy = "Resume with the input and options that it was made with, or leave out --resume to start afresh."
    raise CheckpointError(refusal(f"the checkpoint belongs to another {what}", rows, remedy))


def _shorten_pair(saved: str, wanted: str) -> list[str]:
    """Both values; long ones are cut so that they start where they first differ."""
    same = next((place for place, pair in enumerate(zip(saved, wanted, strict=False)) if pair[0] != pair[1]), 0)
    begin = saved.rfind(", ", 0, same) + len(", ") if ", " in saved[:same] else 0
    return [_short(text, begin) for text in (saved, wanted)]


def _short(text: str, begin: int) -> str:
    if len(text) < _LONG:
        return text
    size = _KEY if begin else _GLIMPSE
    return "..." * (begin > 0) + text[begin : begin + size] + "..." * (begin + size < len(text))
