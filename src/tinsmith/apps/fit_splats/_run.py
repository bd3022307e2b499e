"""The run of fit-splats: check the options, learn, evaluate held-out views, and write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .._checkpoint import Checkpoints
from .._cost import Cost
from .._processes import Processes
from .._progress import Watch
from .._run import one_torch_thread
from ..scenes import SceneReached, Viewer, identify_run, load_scene, run_scene
from ._learner import FILES, SplatLearner
from ._options import SplatOptions

_FORMAT = "tinsmith fit-splats 1"
_SHARED = ("gaussians", "most", "degree", "strategy", "background", "seed")


@one_torch_thread()
def fit_splats(options: SplatOptions, watch: Watch | None = None, viewer: Viewer | None = None) -> SceneReached:
    """Fit Gaussians to pictures of a scene, and write the results into `options.out`.

    Without a dataset it first renders a built-in scene and writes it as one. Ctrl-C ends the run after the current
    step; pictures and checkpoint are then written as they are. A resumed run continues from its checkpoint: on the CPU
    bitwise like an uninterrupted one, given the same machine, versions and `steps` (learning rates fall towards
    the last).

    Args:
        options: the options of the run.
        watch: called at the start and after each step with the steps taken, the steps in all and the PSNR.
        viewer: a page to walk around among the Gaussians. After the last step it stays until you press
            Finish or Ctrl-C.

    Raises:
        InputError: the dataset cannot be read, or `out` not written.
        CheckpointError: with `resume`, the checkpoint is missing, broken or of another run.
        EngineError: the engine is not available.
    """
    dataset = load_scene(options, _estimate_cost(options), gaussians=options.gaussians, steps=options.steps)

    def make_learner(_: Processes) -> SplatLearner:
        return SplatLearner(dataset, options)

    checkpoints = Checkpoints(options.out, _FORMAT, identify_run(dataset, options, _SHARED))
    with _use_ordered_sums(options.device):
        return run_scene(options, dataset, make_learner, checkpoints, FILES, watch, viewer)


def _estimate_cost(options: SplatOptions) -> Cost:
    """Return a lower bound of a run's cost: that of each Gaussian's parameters, their gradients and two moments of
    Adam.
    """
    floats, copies = 11 + 3 * (options.degree + 1) ** 2, 4
    memory = options.gaussians * floats * copies * 4.0
    return Cost(memory, options.steps * (1e-3 + options.gaussians * 2e-7))


@contextmanager
def _use_ordered_sums(device: str) -> Iterator[None]:
    """Enter a context in which torch's sums on the CPU have a fixed order. Does nothing on a GPU, whose threads add in
    any order.
    """
    if device != "cpu":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
