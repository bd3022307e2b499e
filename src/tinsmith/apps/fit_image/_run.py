"""A fit from beginning to end: check everything, then optimise, then write."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ..._errors import InputError, refusal
from ...engines import get
from .._files import require_writable
from .._interrupt import Stop, stop_on_interrupt
from .._threads import one_torch_thread
from . import _checkpoint
from ._gaussians import renderer, scattered
from ._options import FitOptions
from ._photo import Photo, load_photo
from ._pictures import FILES, write_all
from ._progress import Watch
from ._training import Training, as_pixels, psnr_of_pixels

_SAVE_EVERY = 100  # steps


@dataclass(frozen=True)
class Fit:
    """What a fit reached.

    `psnr` is that of the picture as written, in 8 bits. `seconds` is the time that the steps of
    this run took, 0 where none was left, and `steps_per_second` how many it made of them. `interrupted`: by Ctrl-C.
    """

    psnr: float
    step: int
    steps: int
    seconds: float
    steps_per_second: float
    interrupted: bool
    files: tuple[Path, ...]


def fit_image(options: FitOptions, watch: Watch | None = None) -> Fit:
    """Fit a photograph with 2-D Gaussians and write what came of it into `options.out`.

    Ctrl-C ends the fit after the step at hand; pictures and checkpoint are then written as they
    are. A resumed fit goes on from its checkpoint. On the CPU it then gives the same pictures and
    Gaussians, to the bit, as one that was never interrupted, given the same machine, versions and
    `steps` (the learning rate falls towards the last). On CUDA it does not: the order in which
    atomic additions reach a pixel is left to chance there.

    Args:
        options: what to do.
        watch: called at the start and after each step with the steps taken, the steps in all and the PSNR.

    Raises:
        InputError: the image cannot be read, or `out` not written.
        CheckpointError: `resume`, but the checkpoint is missing, broken or of another fit.
        EngineError: the engine or the device is not there.
    """
    photo, checkpoint = _checked(options)
    render = renderer(options.engine, options.device)
    start = scattered(photo, options.gaussians, options.seed)
    training = Training(photo, start, options.steps, render, options.device)
    if checkpoint is not None:
        _checkpoint.restore(training, checkpoint)
    with stop_on_interrupt() as stop, one_torch_thread():
        taken, seconds = _optimise(training, options, watch, stop)
    return _written(training, options, taken, seconds)


def _checked(options: FitOptions) -> tuple[Photo, _checkpoint.Checkpoint | None]:
    """Everything that can be refused is refused here, before anything is started or written."""
    photo = load_photo(options.image, options.size)
    get(options.engine)
    if options.device not in ("cpu", "cuda") or (options.device == "cuda" and not torch.cuda.is_available()):
        raise InputError(refusal("torch has no such device", [("device", options.device)], "Use --device cpu."))
    checkpoint = _checkpoint.load(options.out, photo, options) if options.resume else None
    _require_image_apart(options)
    require_writable(options.out)
    return photo, checkpoint


def _require_image_apart(options: FitOptions) -> None:
    """The photograph must not be a file that the fit writes."""
    if options.image is None or options.image.resolve() not in [(options.out / name).resolve() for name in FILES]:
        return
    raise InputError(
        refusal(
            "the image would be overwritten by the fit",
            [("file", str(options.image))],
            "Choose another folder with --out.",
        )
    )


def _optimise(training: Training, options: FitOptions, watch: Watch | None, stop: Stop) -> tuple[int, float]:
    """Take the steps that are left; how many were taken, and in how many seconds."""
    if watch is not None:
        watch(training.step, training.steps, training.history.psnr)
    first, start = training.step, time.perf_counter()
    while training.step < training.steps and not stop.requested:
        training.advance()
        if watch is not None:
            watch(training.step, training.steps, training.history.psnr)
        if training.step % _SAVE_EVERY == 0:
            _checkpoint.save(options.out, training, options)
    taken = training.step - first
    return taken, time.perf_counter() - start if taken else 0.0


def _written(training: Training, options: FitOptions, taken: int, seconds: float) -> Fit:
    checkpoint = _checkpoint.save(options.out, training, options)  # first: it is what cannot be made again
    pictures = write_all(options.out, training)
    with torch.no_grad():
        reached = psnr_of_pixels(as_pixels(training.image()), training.photo)
    return Fit(
        psnr=reached,
        step=training.step,
        steps=training.steps,
        seconds=seconds,
        steps_per_second=taken / seconds if taken else 0.0,
        interrupted=training.step < training.steps,
        files=(*pictures, checkpoint),
    )
