"""A whole fit: check everything, optimise, and write."""

from __future__ import annotations

from pathlib import Path

import torch

from ...engines import get
from .._claim import claim_folder
from .._cost import Cost, require_affordable
from .._files import require_writable
from .._film import as_pixels, flat_psnr, psnr_of_pixels
from .._interrupt import stop_on_interrupt
from .._loop import Reached, is_written, require_apart, require_device, summarize_picture_run, take_steps
from .._photo import Photo, load_photo
from .._progress import Watch
from .._threads import one_torch_thread
from . import _checkpoint
from ._gaussians import renderer, scatter_gaussians
from ._options import FitOptions
from ._pictures import FILES, write_all
from ._training import Training


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
    photo, checkpoint = _check_options(options)
    render = renderer(options.engine, options.device)
    start = scatter_gaussians(photo, options.gaussians, options.seed)
    training = Training(photo, start, options.steps, render, options.device)
    if checkpoint is not None:
        _checkpoint.restore(training, checkpoint)

    def save() -> Path:
        return _checkpoint.save(options.out, training, options)

    with claim_folder(options.out):
        with stop_on_interrupt() as stop, one_torch_thread():
            taken, seconds = take_steps(training, save, watch, stop)
        files = list[Path]()
        if taken or not is_written(options.out, FILES):
            # The checkpoint first, since it cannot be made again.
            files = [save()]
            files = [*write_all(options.out, training, seconds), *files]
    with torch.no_grad():
        psnr = psnr_of_pixels(as_pixels(training.image()), photo.pixels)
    return summarize_picture_run(training, psnr, taken, seconds, files, flat_psnr(photo.pixels))


def _check_options(options: FitOptions) -> tuple[Photo, _checkpoint.Checkpoint | None]:
    """Check everything that can be checked, before anything is started or written."""
    photo = load_photo(options.image, options.size)
    get(options.engine)
    require_device(options.device)
    require_affordable(_estimate_cost(options), options.device, gaussians=options.gaussians, steps=options.steps)
    checkpoint = _checkpoint.load(options.out, photo, options) if options.resume else None
    require_apart("image", options.image, options.out, FILES)
    require_writable(options.out)
    return photo, checkpoint


def _estimate_cost(options: FitOptions) -> Cost:
    """At least: nine numbers a Gaussian, with gradient, two moments of Adam, what is rendered and its gradient."""
    floats, copies = 9, 8
    return Cost(options.gaussians * floats * copies * 4.0, options.steps * (1e-3 + options.gaussians * 2e-7))
