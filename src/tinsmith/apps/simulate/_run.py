"""A whole run of a simulation: check everything, train, draw, and write."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...engines import choose_default, get, init_quietly, list_running
from ...nn import write_checkpoint
from .. import _trainer_checkpoint
from .._claim import claim_folder
from .._cost import Cost, require_affordable
from .._files import require_writable
from .._interrupt import stop_on_interrupt
from .._loop import describe_run, is_written, require_at_least, require_device, take_steps
from .._pictures import picture, stack_sheets, write_curve, write_files, write_loop, write_summary
from .._progress import Watch
from .._simulations import SIMULATIONS, require_simulation
from .._threads import one_torch_thread
from ._live import LiveSimulation
from ._simulation import Look, Simulation, SimulationOutcome

FILES = ("simulation.png", "simulation.gif", "curve.png", "summary.json")

_FORMAT = "tinsmith simulate 1"
_LAST_RATE = 0.05  # the factor of the learning rate at the end
_STEEPEST = 0.1  # of a gradient: where a simulation is chaotic, a single one may be a million times the others
_SHOWN = 5  # frames in the picture


@dataclass(frozen=True)
class SimulateOptions:
    """The options of a run; `tinsmith simulate --help` describes each. None for the simulation's default.

    Raises:
        InputError: a number is too small, or the simulation is unknown.
    """

    out: Path
    name: str
    steps: int | None = None
    iterations: int | None = None
    seed: int = 0
    engine: str = field(default_factory=choose_default)
    device: str = "cpu"
    resume: bool = False

    def __post_init__(self) -> None:
        require_simulation(self.name)
        numbers = {"steps": self.steps, "iterations": self.iterations}
        require_at_least(1, **{name: value for name, value in numbers.items() if value is not None})
        require_at_least(0, seed=self.seed)


class Learner:
    """A simulation and its optimizer, as a checkpoint holds them."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.optimizer = torch.optim.Adam(simulation.parameters(), simulation.rate)

    def save(self, path: Any, extra: Any = None) -> None:
        """Write all of it."""
        state = {"simulation": self.simulation.state_dict(), "optimizer": self.optimizer.state_dict()}
        write_checkpoint(path, {"trainer": state, "extra": extra})

    def load_state_dict(self, state: Any) -> None:
        """Restore what `save` wrote."""
        self.simulation.load_state_dict(state["simulation"])
        self.optimizer.load_state_dict(state["optimizer"])


class Training:
    """The iterations of a run, and the loss before each."""

    def __init__(self, simulation: Simulation, iterations: int) -> None:
        self.trainer = Learner(simulation)
        self.step, self.steps = 0, iterations
        self.losses: list[float] = []

    @property
    def quality(self) -> float:
        """The loss before the last iteration; nan before the first."""
        return self.losses[-1] if self.losses else math.nan

    def advance(self) -> None:
        """One iteration of Adam down the loss."""
        simulation, optimizer = self.trainer.simulation, self.trainer.optimizer
        done = min(self.step / self.steps, 1)
        for group in optimizer.param_groups:
            group["lr"] = simulation.rate * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * done)))
        optimizer.zero_grad()
        loss = simulation.loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(simulation.parameters(), _STEEPEST)
        optimizer.step()
        self.losses.append(loss.item())
        self.step += 1

    def state(self) -> dict[str, Any]:
        """State of a resumed run besides the learner's."""
        return {"step": self.step, "losses": torch.tensor(self.losses, dtype=torch.float64)}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        self.step, self.losses = state["step"], state["losses"].tolist()


def simulate(
    options: SimulateOptions, watch: Watch | None = None, live: LiveSimulation | None = None
) -> SimulationOutcome:
    """Train a simulation, and write the results into `options.out`.

    Ctrl-C ends the run after the current iteration; pictures and checkpoint are then written as they are. A resumed run
    continues from its checkpoint: on the CPU bitwise like an uninterrupted one, given the same machine,
    versions and `iterations`.

    Args:
        options: the options of the run.
        watch: called at the start and after each iteration with the iterations made, those in all and the loss.
        live: a page that shows the run and can pause and stop it. It stays after the last iteration until it is closed.

    Raises:
        InputError: `out` cannot be written.
        CheckpointError: with `resume`, the checkpoint is missing, broken or of another run.
        EngineError: the engine is not available.
    """
    get(options.engine)
    require_device(options.device)
    kind = _find_simulation(options.name)
    steps, iterations = options.steps or kind.steps, options.iterations or kind.iterations
    # At least: what is kept of a step is eight bytes, and a launch takes some microseconds.
    cost = Cost(steps * 8.0, iterations * steps * 5e-6)
    require_affordable(cost, options.device, steps=steps, iterations=iterations)
    run = {"simulation": options.name, "steps": str(options.steps), "seed": options.seed}
    checkpoint = _trainer_checkpoint.load(options.out, _FORMAT, run) if options.resume else None
    require_writable(options.out)
    simulation = _make(options)
    training = Training(simulation, iterations)
    with claim_folder(options.out), stop_on_interrupt() as stop, one_torch_thread():
        before = torch.no_grad()(simulation.look)()
        if checkpoint is not None:
            _trainer_checkpoint.restore(options.out, training, checkpoint)

        def save() -> Path:
            return _trainer_checkpoint.save(options.out, training, _FORMAT, run)

        if live is not None:
            live.begin(training, before, stop, options.out, options.name)
            watch = live.watching(watch)
        taken, seconds = take_steps(training, save, watch, stop)

        def write() -> SimulationOutcome:
            after = torch.no_grad()(simulation.look)()
            files = list[Path]()
            if taken or not is_written(options.out, FILES):
                # The checkpoint first, since it cannot be made again.
                files = [save()]
                files = [*_write_all(options, training, before, after, seconds), *files]
            figures = before.figure, after.figure
            return SimulationOutcome(
                **describe_run(training, taken, seconds, files), figures=figures, words=simulation.figure
            )

        return write() if live is None else live.finish(write)


def _find_simulation(name: str) -> Any:
    """The class of a simulation."""
    file, own_name = SIMULATIONS[name].place.split(":")
    return getattr(importlib.import_module(f".{file}", __package__), own_name)


def _make(options: SimulateOptions) -> Simulation:
    """The simulation, on an engine that is started unless it already runs for that device."""
    if options.engine not in list_running() or get(options.engine).device_type() != options.device:
        init_quietly(options.device, options.engine)
    with torch.random.fork_rng():
        torch.manual_seed(options.seed)
        made = _find_simulation(options.name)(options.engine, options.steps)
    return made.to(options.device)


def _write_all(options: SimulateOptions, training: Training, before: Look, after: Look, seconds: float) -> list[Path]:
    def draw(path: Path) -> None:
        stack_sheets([picture(_choose(look)) for look in (before, after)]).save(path)

    facts = {
        "simulation": options.name,
        "figure": training.trainer.simulation.figure,
        "before": before.figure,
        "after": after.figure,
        "iteration": training.step,
        "iterations": training.steps,
        "time_steps": training.trainer.simulation.steps,
        "seconds": seconds,
    }
    curves = {"loss": (range(len(training.losses)), training.losses)}
    writers = (
        draw,
        lambda path: write_loop(path, after.frames),
        lambda path: write_curve(path, curves, logarithmic="loss"),
        lambda path: write_summary(path, facts),
    )
    return write_files(options.out, dict(zip(FILES, writers, strict=True)))


def _choose(look: Look) -> torch.Tensor:
    """Some frames side by side, from the first to the last."""
    last = len(look.frames) - 1
    return torch.cat([look.frames[number * last // (_SHOWN - 1)] for number in range(_SHOWN)], 1)
