"""The run of a simulation: check the options, train, draw, and write."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...engines import choose_default, get, init_quietly, list_running
from .._checkpoint import Checkpoints
from .._cost import Cost
from .._processes import Processes
from .._progress import Watch
from .._run import one_torch_thread, require_at_least, require_runnable, run_training
from .._simulations import SIMULATIONS, require_simulation
from ._learner import FILES, SimulationLearner
from ._live import LiveSimulation
from ._simulation import Simulation, SimulationOutcome

_FORMAT = "tinsmith simulate 1"


@dataclass(frozen=True)
class SimulateOptions:
    """The options of a run; `tinsmith simulate --help` describes each. None selects the simulation's default.

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
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_simulation(self.name)
        numbers = {"steps": self.steps, "iterations": self.iterations}
        require_at_least(1, **{name: value for name, value in numbers.items() if value is not None})
        require_at_least(0, seed=self.seed)


@one_torch_thread()
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
    kind = _find_simulation(options.name)
    steps, iterations = options.steps or kind.steps, options.iterations or kind.iterations
    # A lower bound: a step keeps at least eight bytes, and a launch takes a few microseconds.
    cost = Cost(steps * 8.0, iterations * steps * 5e-6)
    require_runnable(options, cost, steps=steps, iterations=iterations)

    def make_learner(_: Processes) -> SimulationLearner:
        return SimulationLearner(options.name, _build_simulation(options), iterations)

    run = {"simulation": options.name, "steps": str(options.steps), "seed": options.seed}
    checkpoints = Checkpoints(options.out, _FORMAT, run)
    return run_training(options, make_learner, checkpoints, FILES, watch=watch, page=live)


def _find_simulation(name: str) -> Any:
    """Import and return the class of a simulation."""
    file, own_name = SIMULATIONS[name].place.split(":")
    return getattr(importlib.import_module(f".{file}", __package__), own_name)


def _build_simulation(options: SimulateOptions) -> Simulation:
    """Build a simulation from the options; start its engine unless it already runs on that device."""
    if options.engine not in list_running() or get(options.engine).device_type() != options.device:
        init_quietly(options.device, options.engine)
    with torch.random.fork_rng():
        torch.manual_seed(options.seed)
        made = _find_simulation(options.name)(options.engine, options.steps)
    return made.to(options.device)
