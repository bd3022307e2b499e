"""The learner of a simulation: the steps of its optimizer, and its pictures, film and curve."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .._pictures import Writer, caption_film, make_image, stack_sheets, write_loop
from .._report import Report
from .._training import History, Learner, Training, decay_rate
from ._simulation import Look, Simulation, SimulationOutcome

FILES = ("simulation.png", "simulation.gif")

_STEEPEST = 0.1  # the maximum norm of a gradient: of a chaotic simulation, one may be a million times the others
_SHOWN = 5  # frames in the picture
_SHEET_WIDTH = 1600  # pixels of the picture


class SimulationTrainer:
    """A simulation and its optimizer, which a checkpoint stores."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.optimizer = torch.optim.Adam(simulation.parameters(), simulation.rate)

    def state_dict(self) -> dict[str, Any]:
        return {"simulation": self.simulation.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.simulation.load_state_dict(state["simulation"])
        self.optimizer.load_state_dict(state["optimizer"])


class SimulationLearner(Learner[Look, SimulationOutcome]):
    """A simulation whose parameters are learned. Its evaluation is the current `Look`; `before` is the one before
    training.
    """

    recorded = ("losses",)

    def __init__(self, name: str, simulation: Simulation, iterations: int) -> None:
        self.name, self.simulation, self.steps = name, simulation, iterations
        self.trainer: SimulationTrainer = SimulationTrainer(simulation)
        self.generators = {}
        self.before = self.look()

    @torch.no_grad()
    def look(self) -> Look:
        """Run the simulation once, and draw it."""
        return self.simulation.look()

    def quality(self, history: History) -> float:
        """Return the loss before the last iteration; NaN before the first."""
        return history.loss

    def training_step(self, training: Training[Any]) -> float:
        """Run one iteration of Adam on the loss; return the loss before it."""
        simulation, optimizer = self.simulation, self.trainer.optimizer
        for group in optimizer.param_groups:
            group["lr"] = simulation.rate * decay_rate(training.step / self.steps)
        optimizer.zero_grad()
        loss = simulation.loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(simulation.parameters(), _STEEPEST)
        optimizer.step()
        return loss.item()

    def evaluate(self, training: Training[Any]) -> Look:
        return self.look()

    def summarize(self, evaluation: Look, run: Mapping[str, Any]) -> SimulationOutcome:
        figures = self.before.figure, evaluation.figure
        return SimulationOutcome(**run, figures=figures, words=self.simulation.figure)

    def make_report(self, training: Training[Any], evaluation: Look) -> Report:
        simulation, losses = self.simulation, training.history.losses
        facts = {
            "simulation": self.name,
            "figure": simulation.figure,
            "before": self.before.figure,
            "after": evaluation.figure,
            "iteration": training.step,
            "iterations": training.steps,
            "time_steps": simulation.steps,
            "seconds": training.seconds,
        }
        before, after = (simulation.figure.format(look.figure) for look in (self.before, evaluation))
        rows = [
            {f"{words}, step {step}": make_image(frame) for step, frame in _choose(look, simulation.every)}
            for words, look in (("before training", self.before), ("after", evaluation))
        ]
        curves = {"loss": (range(len(losses)), losses)}
        score = f"{after} (before training: {before})"
        return Report(f"simulate: {self.name}", score, facts, curves, rows, SimulationOutcome.unit)

    def writers(self, training: Training[Any], evaluation: Look, report: Report) -> Mapping[str, Writer]:
        simulation = self.simulation
        title = f"{self.name}, iteration {training.step}: {simulation.figure.format(evaluation.figure)}"
        film = caption_film(evaluation.frames, title, simulation.caption)

        def draw(path: Path) -> None:
            looks = (self.before, evaluation)
            moments = [torch.cat([frame for _, frame in _choose(look, simulation.every)], 1) for look in looks]
            sheet = stack_sheets([make_image(one) for one in moments])
            sheet.thumbnail((_SHEET_WIDTH, sheet.height))
            sheet.save(path)

        writers = (draw, lambda path: write_loop(path, film, is_dithered=False))
        return dict(zip(FILES, writers, strict=True))


def _choose(look: Look, every: int) -> list[tuple[int, torch.Tensor]]:
    """Select some frames, from the first to the last, each with its time step. Frames are `every` time steps apart."""
    last = len(look.frames) - 1
    numbers = [number * last // (_SHOWN - 1) for number in range(_SHOWN)]
    return [(every * number, look.frames[number]) for number in numbers]
