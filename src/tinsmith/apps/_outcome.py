"""The outcomes of trainings: what was reached, and which files were written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ._film import decibels

_LEAST_GAIN, _GOOD = 0.5, 30.0  # dB


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
    def details(self) -> str:
        """What is said before the quality, or ""."""
        return ""

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
