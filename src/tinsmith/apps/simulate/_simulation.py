"""The interface of a simulation: its parameters, its loss, and its pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .._outcome import Outcome

FRAMES = 48
"""Frames of a film, at most."""


class Look(NamedTuple):
    """What a simulation does at the moment: frames (rows, columns, 3) uint8, and the figure that it is known by."""

    frames: Sequence[Tensor]
    figure: float


@dataclass(frozen=True)
class SimulationOutcome(Outcome):
    """What a run reached: the figure that the simulation is known by, before training and after."""

    figures: tuple[float, float]
    words: str
    unit = "iteration"

    @property
    def score(self) -> str:
        before, after = (self.words.format(one) for one in self.figures)
        return f"Before training: {before}. Now: {after}"


class Simulation(torch.nn.Module, ABC):
    """A simulation with something to learn: its parameters change so that `loss()` falls.

    What does not change is kept in buffers, so that `.double()` and `.to(device)` move all of it.

    Attributes:
        steps: time steps of a rollout, if not given.
        iterations: iterations of Adam, if not given.
        rate: the learning rate at the start.
        figure: what `Look.figure` is, in words, with its unit in the form of `str.format`.
    """

    steps: int
    iterations: ClassVar[int]
    rate: ClassVar[float]
    figure: ClassVar[str]

    def __init__(self, steps: int | None) -> None:
        super().__init__()
        self.steps = type(self).steps if steps is None else steps

    @property
    def every(self) -> int:
        """A film shows every n-th state."""
        return -(-self.steps // FRAMES)

    @abstractmethod
    def loss(self) -> Tensor:
        """The loss to minimize, a 0-d tensor."""

    @abstractmethod
    def look(self) -> Look:
        """Run the simulation once, and draw it."""

    def keep_constants(self, **constants: Any) -> None:
        """Keep tensors that do not change, as buffers that no checkpoint needs."""
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)
