"""A run of a simulation on a page: how it moves before training and now, and the loss."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._interrupt import Stop
from .._live import Live, serve_live
from .._pictures import write_loop
from ._simulation import Look, SimulationOutcome

if TYPE_CHECKING:
    from ._run import Training

_PAGE = Path(__file__).with_name("page.html")


class LiveSimulation(Live[SimulationOutcome]):
    """A run on a page: see `Live`. Its pictures are the films "before" and "now"."""

    def begin(self, training: Training, before: Look, stop: Stop, folder: Path, name: str) -> None:
        """Show a training from now on; `stop` is what asks it to stop, `folder` where its files will be."""
        self._training = training
        self._pictures["before"] = _film(before.frames)
        figure = training.trainer.simulation.figure.format(before.figure)
        self.start(stop, folder, simulation=name, time_steps=training.trainer.simulation.steps, before=figure)
        self.publish("learning")

    def look(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """The simulation as it runs now, and its loss."""
        training = self._training
        simulation = training.trainer.simulation
        # A look must not change the run.
        with torch.no_grad(), torch.random.fork_rng():
            now = simulation.look()
        return {"now": _film(now.frames)}, {
            "step": training.step,
            "steps": training.steps,
            "loss": training.quality,
            "now": simulation.figure.format(now.figure),
            "curve": list(training.losses),
        }


@contextmanager
def live_page(port: int = 0, say: Callable[[str], object] = lambda words: None) -> Iterator[LiveSimulation]:
    """Within, a page on this machine shows a run: `simulate(options, live=...)`.

    Args:
        port: of 127.0.0.1; 0 for one that is free.
        say: called with words for the terminal when the files are written and the page stays.

    Raises:
        InputError: the port is taken.
    """
    with serve_live(LiveSimulation(say), _PAGE, port) as live:
        yield live


def _film(frames: Sequence[Tensor]) -> bytes:
    held = io.BytesIO()
    write_loop(held, frames)
    return held.getvalue()
