"""The live page of a simulation: films of it before training and now, and the loss."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._live import Live, serve_live
from .._pictures import write_loop
from ._learner import SimulationLearner
from ._simulation import SimulationOutcome

_PAGE = Path(__file__).with_name("page.html")


class LiveSimulation(Live[SimulationLearner, SimulationOutcome]):
    """A page of a run: see `Live`. Its pictures are the films "before" and "now"."""

    def describe_start(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        learner = self._training.learner
        before = learner.simulation.figure.format(learner.before.figure)
        facts = {"simulation": learner.name, "time_steps": learner.simulation.steps, "before": before}
        return {"before": _film(learner.before.frames)}, facts

    def look(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Return the film of the current simulation as GIF, and its loss and other facts."""
        training, learner = self._training, self._training.learner
        # Drawing must not change the run's random numbers.
        with torch.random.fork_rng():
            now = learner.look()
        return {"now": _film(now.frames)}, {
            "step": training.step,
            "steps": training.steps,
            "loss": training.quality,
            "now": learner.simulation.figure.format(now.figure),
            "curve": list(training.history.losses),
        }


live_page = functools.partial(serve_live, LiveSimulation, _PAGE)
"""Enters a context that serves the page: `serve_live`, of a port and a function that prints."""


def _film(frames: Sequence[Tensor]) -> bytes:
    held = io.BytesIO()
    write_loop(held, frames)
    return held.getvalue()
