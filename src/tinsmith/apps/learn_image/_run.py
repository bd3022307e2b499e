"""The run of learn-image: check the options, learn, and write."""

from __future__ import annotations

from pathlib import Path

from .._checkpoint import Checkpoints
from .._cost import Cost
from .._outcome import Reached
from .._photo import load_photo
from .._processes import Processes, read_launched_processes
from .._progress import Watch
from .._run import one_torch_thread, require_runnable, run_training
from ._blocks import require_room
from ._learner import FILES, NetworkLearner
from ._live import LiveImage
from ._recipe import LearnOptions, Recipe, resolve_recipe

_FORMAT = "tinsmith learn-image 1"


@one_torch_thread()
def learn_image(options: LearnOptions, watch: Watch | None = None, live: LiveImage | None = None) -> Reached:
    """Learn a photograph with one network or an array of them, and write the results into `options.out`.

    Ctrl-C ends the run after the current step; pictures and checkpoint are then written as they are. A resumed run
    continues from its checkpoint: on the CPU bitwise like an uninterrupted one, given the same machine, versions
    and `steps`.

    Args:
        options: the options of the run.
        watch: called at the start and after each step with the steps taken, the steps in all and the PSNR.
        live: a page that shows the run, can pause it and train single blocks. After the last step everything
            is written, and the page stays until you press Finish or Ctrl-C; results of training until then are
            written as well.

    Raises:
        InputError: the image or the configuration cannot be read, or `out` not written.
        ConfigError: the configuration does not fit.
        CheckpointError: with `resume`, the checkpoint is missing, broken or of another run.
        EngineError: the engine is not available.
    """
    photo = load_photo(options.image, options.size)
    settled = resolve_recipe(options)
    require_room(photo, settled.grid_shape or (1, 1))
    numbers = {"batch_size": settled.batch_size, "steps": settled.steps}
    require_runnable(options, _estimate_cost(settled), **numbers)

    def make_learner(processes: Processes) -> NetworkLearner:
        return NetworkLearner(photo, settled, options.seed, options.engine, options.device, processes)

    run = photo.identity() | settled.identity() | {"seed": options.seed}
    return run_training(
        options,
        make_learner,
        Checkpoints(options.out, _FORMAT, run),
        FILES,
        inputs=[("image", options.image), ("configuration", Path(options.config))],
        shares=("the batch size", settled.batch_size),
        watch=watch,
        page=live,
    )


def _estimate_cost(recipe: Recipe) -> Cost:
    """Return a lower bound of a run's cost for one process.

    It counts position, color, prediction, loss and two gradients of each sample in a batch.
    """
    rows, columns = recipe.grid_shape or (1, 1)
    samples = rows * columns * recipe.batch_size / read_launched_processes().count
    floats = 2 + 5 * 3
    return Cost(samples * floats * 4.0, recipe.steps * (1e-3 + samples * 1e-8))
