"""The training of every app: its steps, history and snapshots. An app's `Learner` defines what is trained."""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from .._errors import InputError
from ._film import choose_film_steps
from ._interrupt import Stop
from ._outcome import Outcome
from ._pictures import Writer
from ._processes import ALONE, Processes
from ._progress import Watch
from ._report import Report

_SAVE_EVERY = 100  # steps
_LAST_RATE = 0.05  # the factor of the learning rate at the end

AnyEvaluation = TypeVar("AnyEvaluation")
AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)


@dataclass
class History:
    """The training so far: the loss before each step, and the results of snapshots.

    Attributes:
        losses: the loss before each step.
        looked: the steps of the snapshots whose PSNR was measured.
        psnrs: the PSNRs of these snapshots, in dB.
        frames: the frames of the film, (rows, columns, 3) uint8.
    """

    losses: list[float] = field(default_factory=list)
    looked: list[int] = field(default_factory=list)
    psnrs: list[float] = field(default_factory=list)
    frames: list[Tensor] = field(default_factory=list)

    @property
    def loss(self) -> float:
        """The loss before the last step; NaN before the first step."""
        return self.losses[-1] if self.losses else math.nan

    @property
    def psnr(self) -> float:
        """The PSNR of the last snapshot, in dB; NaN before the first snapshot."""
        return self.psnrs[-1] if self.psnrs else math.nan

    def state(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the fields of these names as nested values for a checkpoint."""
        fields = {
            "losses": torch.tensor(self.losses, dtype=torch.float64),
            "looked": self.looked,
            "psnrs": self.psnrs,
            "frames": torch.stack(self.frames) if self.frames else None,
        }
        return {name: fields[name] for name in names}

    def restore(self, state: Mapping[str, Any], names: Sequence[str]) -> None:
        """Restore the fields of these names from the result of `state`."""
        for name in names:
            value = state[name]
            setattr(self, name, [] if value is None else value.tolist() if name == "losses" else list(value))


def decay_rate(done: float) -> float:
    """Return the factor of a learning rate after a part of the training, 0 to 1: half a cosine from 1 to 0.05."""
    return _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * min(done, 1)))


class Snapshot(NamedTuple):
    """A measurement during a training: the PSNR in dB, and a frame of the film. None for what an app does not
    provide.
    """

    psnr: float | None = None
    frame: Tensor | None = None


class Learner(ABC, Generic[AnyEvaluation, AnyOutcome]):
    """What an app trains: a model with its optimizer and its data, and how its results are shown.

    Attributes:
        steps: the number of steps of the whole training.
        trainer: has `state_dict()` and `load_state_dict(state)`, as `nn.Trainer`, for `Checkpoints`.
        generators: the random generators that steps draw from, by their names in a checkpoint.
        recorded: the names of the fields of `History` that a checkpoint stores.
        extra_steps: how many steps of this run are not counted as steps of the training, such as those of one block
            alone.
    """

    steps: int
    trainer: Any
    generators: dict[str, torch.Generator]
    recorded: ClassVar[Sequence[str]] = ("losses", "looked", "psnrs")
    extra_steps: int = 0

    @abstractmethod
    def training_step(self, training: Training[Any]) -> float:
        """Run one step; return the loss before it."""

    @abstractmethod
    def evaluate(self, training: Training[Any]) -> AnyEvaluation:
        """Evaluate the current model, for `make_report`, `writers` and `summarize`."""

    @abstractmethod
    def make_report(self, training: Training[Any], evaluation: AnyEvaluation) -> Report:
        """Make the report of the training: its curves, its pictures and its numbers."""

    @abstractmethod
    def writers(self, training: Training[Any], evaluation: AnyEvaluation, report: Report) -> Mapping[str, Writer]:
        """Return the function that writes each of the app's own result files, by the file's name. The checkpoint and
        the files of the report are not among them.
        """

    @abstractmethod
    def summarize(self, evaluation: AnyEvaluation, run: Mapping[str, Any]) -> AnyOutcome:
        """Return the outcome of a run. `run` has the fields that all outcomes share."""

    def take_snapshot(self) -> Snapshot:
        """Measure the model quickly during the training; return its PSNR and a frame of the film, if it has them."""
        return Snapshot()

    def quality(self, history: History) -> float:
        """Return the number for the progress bar: a PSNR in dB, or a loss; NaN if there is none yet."""
        return history.psnr


AnyLearner = TypeVar("AnyLearner", bound=Learner[Any, Any])


class Training(Generic[AnyLearner]):
    """A learner in training. Its state is that of the learner, `history` and `step`.

    Attributes:
        step: the number of steps taken in all.
        steps: the number of steps of the whole training.
        taken: the number of steps that this run took.
        seconds: how long they took; 0 if none were left.
    """

    def __init__(self, learner: AnyLearner, processes: Processes = ALONE) -> None:
        self.learner, self.processes = learner, processes
        self.step, self.steps = 0, learner.steps
        self.taken, self.seconds = 0, 0.0
        self.history = History()
        self._snapshot_steps = choose_film_steps(self.steps)

    @property
    def quality(self) -> float:
        """The number for the progress bar: a PSNR in dB, or a loss; NaN if there is none yet."""
        return self.learner.quality(self.history)

    def run_training_step(self) -> None:
        """Run one training step; take a snapshot before it if one is due."""
        if self.step in self._snapshot_steps and self.processes.is_first:
            self.look()
        self.history.losses.append(self.learner.training_step(self))
        self.step += 1

    def look(self) -> None:
        """Take a snapshot, and append it to the history."""
        snapshot = self.learner.take_snapshot()
        if snapshot.psnr is not None:
            self.history.looked.append(self.step)
            self.history.psnrs.append(snapshot.psnr)
        if snapshot.frame is not None:
            self.history.frames.append(snapshot.frame)

    def run(self, save: Callable[[], object], watch: Watch | None, stop: Stop) -> None:
        """Run the remaining steps unless a stop is requested; save a checkpoint every 100 steps."""
        watch = watch or (lambda *_: None)
        # Like the progress bar, count the time from the first call of `watch` to the last step.
        first, start = self.step, time.perf_counter()
        watch(self.step, self.steps, self.quality)
        while self.step < self.steps and not self.processes.any_process(stop.is_requested):
            self.run_training_step()
            self.taken, self.seconds = self.step - first, time.perf_counter() - start
            watch(self.step, self.steps, self.quality)
            if self.step % _SAVE_EVERY == 0 and self.processes.is_first:
                _try_to_save(save)

    def describe_run(self, files: Collection[Path]) -> dict[str, Any]:
        """Return the fields that all outcomes share, for a run that wrote these files."""
        return {
            "step": self.step,
            "steps": self.steps,
            "seconds": self.seconds,
            "steps_per_second": self.taken / self.seconds if self.taken else 0.0,
            "interrupted": self.step < self.steps,
            "files": tuple(files),
        }

    def state(self) -> dict[str, Any]:
        """Return the state, except the trainer's, as nested values for a checkpoint."""
        generators = {name: generator.get_state() for name, generator in self.learner.generators.items()}
        return {"step": self.step, **generators, **self.history.state(self.learner.recorded)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the training from the result of `state`."""
        self.step = state["step"]
        for name, generator in self.learner.generators.items():
            generator.set_state(state[name])
        self.history.restore(state, self.learner.recorded)


def _try_to_save(save: Callable[[], object]) -> None:
    """Save a checkpoint during a training. If that fails, only warn: the disk may have space again at the next one."""
    try:
        save()
    except InputError as error:
        warnings.warn(f"{error}\nThe training goes on to the next checkpoint.", RuntimeWarning, stacklevel=3)
