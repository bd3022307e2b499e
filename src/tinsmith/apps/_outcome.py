"""The outcomes of trainings: what was reached, and which files were written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ._film import format_decibels
from ._progress import format_speed

_LEAST_GAIN, _GOOD = 0.5, 30.0  # dB


@dataclass(frozen=True)
class Outcome(ABC):
    """The result of a training.

    Attributes:
        step: the number of steps taken in all.
        steps: the number of steps of the whole training.
        seconds: how long the steps of this run took; 0 if none were left.
        steps_per_second: the steps of this run per second.
        interrupted: whether Ctrl-C ended the run.
        files: the files that were written; none if no steps were left and the files existed.
        unit: the word for a step in the command line.
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
        """The quality as text."""

    def describe_speed(self, unit: str = "", a_step: int = 0) -> str:
        """Return the seconds and the speed of this run as text, such as "12.0 s, 41 steps/s, 85,000 rays/s".

        Args:
            unit: a second unit for the speed, in the plural.
            a_step: the number of such units in a step; 0 leaves the second speed out.
        """
        speed = f"{self.seconds:.1f} s, {format_speed(self.steps_per_second, f'{self.unit}s')}"
        return speed + (f", {format_speed(self.steps_per_second * a_step, unit)}" if a_step else "")

    @property
    def details(self) -> str:
        """Text that precedes the quality, or ""."""
        return ""

    @property
    def remark(self) -> str:
        """A further remark, or ""."""
        return ""


@dataclass(frozen=True)
class Reached(Outcome):
    """The outcome of a training towards a picture.

    Attributes:
        psnr: the PSNR in dB of the written picture, in 8 bits.
        flat: the PSNR in dB of a picture painted in the mean color.
    """

    psnr: float
    flat: float

    @property
    def score(self) -> str:
        """The PSNR as text."""
        return format_decibels(self.psnr, 2)

    @property
    def flat_score(self) -> str:
        """The PSNR, as text, of a picture painted in the mean color: a fit must surpass it."""
        return format_decibels(self.flat, 2)

    @property
    def remark(self) -> str:
        """A remark if nothing was learned, or ""."""
        return f"That is not better than a single color, {self.flat_score}." * self.learned_nothing

    @property
    def learned_nothing(self) -> bool:
        """True if a single color would be as good. A photograph of hardly more than one color does not count."""
        return self.psnr < min(self.flat + _LEAST_GAIN, _GOOD)
