"""The run of fit-image: check the options, optimize, and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...engines import choose_default
from .._cost import Cost
from .._outcome import Reached
from .._photo import load_photo
from .._processes import Processes
from .._progress import Watch
from .._run import one_torch_thread, require_at_least, require_runnable, run_training
from ._checkpoint import FitCheckpoints
from ._gaussians import make_renderer, scatter_gaussians
from ._learner import FILES, GaussianLearner


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit; `tinsmith fit-image --help` describes each.

    Raises:
        InputError: a number is too small.
    """

    out: Path
    image: Path | None = None
    gaussians: int = 2000
    steps: int = 500
    size: int = 256
    seed: int = 0
    engine: str = field(default_factory=choose_default)
    device: str = "cpu"
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_at_least(1, gaussians=self.gaussians, steps=self.steps, size=self.size)


@one_torch_thread()
def fit_image(options: FitOptions, watch: Watch | None = None) -> Reached:
    """Fit a photograph with 2-D Gaussians, and write the results into `options.out`.

    Ctrl-C ends the fit after the current step; pictures and checkpoint are then written as they
    are. A resumed fit continues from its checkpoint. On the CPU it then gives the same pictures and
    Gaussians, bitwise, as an uninterrupted fit, given the same machine, versions and
    `steps` (the learning rate falls towards the last). On CUDA it does not: the order in which
    atomic additions reach a pixel is not fixed there.

    Args:
        options: the options of the run.
        watch: called at the start and after each step with the steps taken, the steps in all and the PSNR.

    Raises:
        InputError: the image cannot be read, or `out` not written.
        CheckpointError: with `resume`, the checkpoint is missing, broken or of another fit.
        EngineError: the engine or the device is not available.
    """
    photo = load_photo(options.image, options.size)
    require_runnable(options, _estimate_cost(options), gaussians=options.gaussians, steps=options.steps)

    def make_learner(_: Processes) -> GaussianLearner:
        render = make_renderer(options.engine, options.device)
        start = scatter_gaussians(photo, options.gaussians, options.seed)
        return GaussianLearner(photo, start, options.steps, render, options.device)

    checkpoints = FitCheckpoints(options.out, photo, options.gaussians, options.seed)
    return run_training(options, make_learner, checkpoints, FILES, inputs=[("image", options.image)], watch=watch)


def _estimate_cost(options: FitOptions) -> Cost:
    """Return a lower bound of a fit's cost.

    Nine numbers for each Gaussian, eight times: the parameters, their gradients, two moments of Adam, the rendered
    values and their gradients.
    """
    floats, copies = 9, 8
    return Cost(options.gaussians * floats * copies * 4.0, options.steps * (1e-3 + options.gaussians * 2e-7))
