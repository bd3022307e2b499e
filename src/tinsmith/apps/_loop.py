"""The frame of every app that trains: checks before the run, the loop, and the outcome."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from .._errors import InputError, refusal
from ._checkpoint import FILE
from ._film import decibels
from ._interrupt import Stop
from ._processes import ALONE, Processes
from ._progress import Watch

_SAVE_EVERY = 100  # steps
_LEAST_GAIN, _GOOD = 0.5, 30.0  # dB


class Steps(Protocol):
    """The interface of a training; its progress bar shows `quality`: a PSNR in dB, a loss, or nan."""

    step: int
    steps: int

    @property
    def quality(self) -> float: ...

    def advance(self) -> None: ...


@dataclass(frozen=True)
class Outcome(ABC):
    """The result of a training.

    `seconds` is the time that the steps of this run took, 0 if none were left, and `steps_per_second` their number per
    second. `interrupted`: by Ctrl-C. `files` are the written files: none if no steps were left and the files existed.
    `unit` is the word for a step in the command line.
    """

    step: int
    steps: int
    seconds: float
    steps_per_second: float
    interrupted: bool
    files: tuple[Path, ...]
    unit: ClassVar[str] = "step"

    @property
    @abstractmethod
    def score(self) -> str:
        """The quality, in words."""

    @property
    def remark(self) -> str:
        """A further remark, or ""."""
        return ""


@dataclass(frozen=True)
class Reached(Outcome):
    """The outcome of a training towards a picture.

    `psnr` is that of the picture as written, in 8 bits; `flat` is the PSNR of a picture all in the mean colour.
    """

    psnr: float
    flat: float

    @property
    def score(self) -> str:
        """The PSNR, in words."""
        return decibels(self.psnr, 2)

    @property
    def flat_score(self) -> str:
        """The PSNR of one colour, in words."""
        return decibels(self.flat, 2)

    @property
    def remark(self) -> str:
        """A remark if nothing was learned."""
        return f"That is not better than a single colour, {self.flat_score}." * self.learned_nothing

    @property
    def learned_nothing(self) -> bool:
        """Whether one colour would be as good; a photograph of hardly more than one colour does not count."""
        return self.psnr < min(self.flat + _LEAST_GAIN, _GOOD)


def require_at_least(least: int, **numbers: int) -> None:
    """Raise InputError for a number that is smaller."""
    for name, value in numbers.items():
        if value < least:
            rows = [("got", str(value)), ("expected", f"{least} or more")]
            raise InputError(refusal(f"`{name}` is too small", rows))


def require_device(device: str) -> None:
    """Raise InputError unless torch has the device."""
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(refusal("torch has no such device", [("device", device)], "Use --device cpu."))


def require_apart(what: str, given: Path | None, out: Path, files: Collection[str]) -> None:
    """Raise InputError if a file that was given is one that the app writes into `out`."""
    if given is None or given.resolve() not in [(out / name).resolve() for name in files]:
        return
    headline = f"the {what} would be overwritten"
    raise InputError(refusal(headline, [("file", str(given))], "Choose another folder with --out."))


def take_steps(
    training: Steps, save: Callable[[], object], watch: Watch | None, stop: Stop, processes: Processes = ALONE
) -> tuple[int, float]:
    """Take the remaining steps; returns their number and the seconds that they took."""
    if watch is not None:
        watch(training.step, training.steps, training.quality)
    first, start = training.step, time.perf_counter()
    while training.step < training.steps and not processes.any(stop.is_requested):
        training.advance()
        if watch is not None:
            watch(training.step, training.steps, training.quality)
        if training.step % _SAVE_EVERY == 0 and processes.is_first:
            _try_to_save(save)
    taken = training.step - first
    return taken, time.perf_counter() - start if taken else 0.0


def _try_to_save(save: Callable[[], object]) -> None:
    """Write a checkpoint during a training. If that fails, warn: there may be room again at the next one."""
    try:
        save()
    except InputError as error:
        warnings.warn(f"{error}\nThe training goes on to the next checkpoint.", RuntimeWarning, stacklevel=3)


def is_written(folder: Path, files: Collection[str]) -> bool:
    """Whether all files exist and none is older than the checkpoint: then they need not be written again."""
    paths = [folder / name for name in (FILE, *files)]
    if not all(path.is_file() for path in paths):
        return False
    checkpoint, *rest = (path.stat().st_mtime_ns for path in paths)
    return min(rest) >= checkpoint


def describe_run(training: Steps, taken: int, seconds: float, files: Collection[Path]) -> dict[str, Any]:
    """The fields of every outcome, for a training that took this number of steps now."""
    speed = taken / seconds if taken else 0.0
    is_short = training.step < training.steps
    return {
        "step": training.step,
        "steps": training.steps,
        "seconds": seconds,
        "steps_per_second": speed,
        "interrupted": is_short,
        "files": tuple(files),
    }


def summarize_picture_run(
    training: Steps, psnr: float, taken: int, seconds: float, files: Collection[Path], flat: float
) -> Reached:
    """The same of a training towards a picture."""
    return Reached(**describe_run(training, taken, seconds, files), psnr=psnr, flat=flat)
