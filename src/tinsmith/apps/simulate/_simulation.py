"""The interface of simulations: their parameters, loss, and pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .._outcome import Outcome

FRAMES = 48
"""The maximum number of frames in a film."""

FRAME_WIDTH = 480
"""The minimum width of a frame in pixels."""


class Look(NamedTuple):
    """A run of a simulation: its frames (rows, columns, 3) uint8, and a number that measures its result."""

    frames: Sequence[Tensor]
    figure: float


@dataclass(frozen=True)
class SimulationOutcome(Outcome):
    """The outcome of a training: the measured result before and after it, and the words that describe the number."""

    figures: tuple[float, float]
    words: str
    unit = "iteration"

    @property
    def score(self) -> str:
        before, after = (self.words.format(one) for one in self.figures)
        return f"Before training: {before}. Now: {after}"


class Simulation(torch.nn.Module, ABC):
    """A simulation with parameters that are learned so that `loss()` decreases.

    Constants are kept in buffers, so that `.double()` and `.to(device)` move all tensors.

    Attributes:
        steps: the default number of time steps in a rollout.
        iterations: the default number of iterations of Adam.
        rate: the learning rate at the start.
        figure: a format string that describes `Look.figure`, with its unit.
        caption: a sentence or two for the film: what its frames show.
    """

    steps: int
    iterations: ClassVar[int]
    rate: ClassVar[float]
    figure: ClassVar[str]
    caption: ClassVar[str]

    def __init__(self, steps: int | None) -> None:
        super().__init__()
        self.steps = type(self).steps if steps is None else steps

    @property
    def every(self) -> int:
        """The film shows every n-th state; this is n."""
        return -(-self.steps // FRAMES)

    @abstractmethod
    def loss(self) -> Tensor:
        """Compute the loss to minimize, a 0-d tensor."""

    @abstractmethod
    def look(self) -> Look:
        """Run the simulation once, and draw it."""

    def keep_constants(self, **constants: Any) -> None:
        """Register constant tensors as buffers, which are not stored in checkpoints."""
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)
