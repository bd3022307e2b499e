"""A whole run: check everything, learn, and write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...engines import get
from .._claim import claim_folder
from .._cost import Cost, require_affordable
from .._files import require_writable
from .._film import as_pixels, flat_psnr, psnr_of_pixels
from .._interrupt import stop_on_interrupt
from .._loop import Reached, is_written, require_apart, require_device, summarize_picture_run, take_steps
from .._photo import Photo, load_photo
from .._processes import join_processes, read_launched_processes
from .._progress import Watch
from .._threads import one_torch_thread
from . import _checkpoint
from ._blocks import require_room
from ._live import LiveImage
from ._options import LearnOptions
from ._pictures import FILES, write_all
from ._recipe import Recipe, recipe
from ._training import Training


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
    photo, settled, checkpoint = _check_options(options)
    with claim_folder(options.out), join_processes(options.device) as processes:
        processes.require_shares("the batch size", settled.batch_size)
        if live is not None:
            processes.require_alone("a live page")
        training = Training(photo, settled, options.seed, options.engine, options.device, processes)
        if checkpoint is not None:
            _checkpoint.restore(training, checkpoint, options)
        return _learn(training, options, watch, live)


def _learn(training: Training, options: LearnOptions, watch: Watch | None, live: LiveImage | None) -> Reached:
    photo, processes = training.photo, training.processes

    def save() -> Path:
        return _checkpoint.save(training, options)

    with stop_on_interrupt() as stop, one_torch_thread():
        if live is not None:
            live.begin(training, stop, options.out)
            watch = live.watching(watch)
        taken, seconds = take_steps(training, save, watch, stop, processes)

        def write() -> Reached:
            image, files = training.image(), list[Path]()
            if processes.is_first and (taken or training.alone or not is_written(options.out, FILES)):
                # The checkpoint first, since it cannot be made again.
                files = [save()]
                files = [*write_all(options.out, training, image, seconds), *files]
            psnr = psnr_of_pixels(as_pixels(image), photo.pixels)
            processes.wait()
            return summarize_picture_run(training, psnr, taken, seconds, files, flat_psnr(photo.pixels))

        return write() if live is None else live.finish(write)


def _check_options(options: LearnOptions) -> tuple[Photo, Recipe, dict[str, Any] | None]:
    """Check everything that can be checked, before anything is started or written."""
    photo = load_photo(options.image, options.size)
    settled = recipe(options)
    require_room(photo, settled.grid_shape or (1, 1))
    if options.engine is not None:
        get(options.engine)
    require_device(options.device)
    numbers = {"batch_size": settled.batch_size, "steps": settled.steps}
    require_affordable(_estimate_cost(settled), options.device, **numbers)
    checkpoint = _checkpoint.load(photo, settled, options) if options.resume else None
    require_apart("image", options.image, options.out, FILES)
    require_apart("configuration", Path(options.config), options.out, FILES)
    require_writable(options.out)
    return photo, settled, checkpoint


def _estimate_cost(recipe: Recipe) -> Cost:
    """At least: position, colour, prediction, loss and two gradients of each sample, shared by the processes."""
    rows, columns = recipe.grid_shape or (1, 1)
    samples = rows * columns * recipe.batch_size / read_launched_processes().count
    floats = 2 + 5 * 3
    return Cost(samples * floats * 4.0, recipe.steps * (1e-3 + samples * 1e-8))
