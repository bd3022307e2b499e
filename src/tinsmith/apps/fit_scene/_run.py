"""A whole run: check everything, learn, evaluate held-out views, and write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..._errors import InputError, refusal
from ...engines import get
from .._claim import claim_folder
from .._cost import Cost, require_affordable
from .._files import require_writable
from .._interrupt import stop_on_interrupt
from .._loop import is_written, require_apart, require_device, summarize_picture_run, take_steps
from .._processes import join_processes
from .._progress import Watch
from .._threads import one_torch_thread
from ..scenes import (
    Box,
    Dataset,
    SceneCheckpoints,
    SceneReached,
    Viewer,
    estimate_own_scene_cost,
    evaluate_model,
    own_scene,
    read_dataset,
    write_dataset,
)
from ._options import SceneOptions
from ._pictures import FILES, write_all
from ._training import Training

OWN = "scene"
"""The folder in `out` for the built-in scene, written as a dataset."""

_CHECKPOINTS = SceneCheckpoints(
    "tinsmith fit-scene 1", ("rays", "bound", "samples", "background", "distortion", "seed")
)


def fit_scene(options: SceneOptions, watch: Watch | None = None, viewer: Viewer | None = None) -> SceneReached:
    """Fit a radiance field to pictures of a scene, and write the results into `options.out`.

    Without a dataset it first renders a built-in scene and writes it as one. Ctrl-C ends the run after the current
    step; pictures and checkpoint are then written as they are. A resumed run continues from its checkpoint: on the CPU
    bitwise like an uninterrupted one, given the same machine, versions and `steps` (the learning rate falls towards
    the last).

    Args:
        options: the options of the run.
        watch: called at the start and after each step with the steps taken, the steps in all and the PSNR.
        viewer: a page to walk around in the field. After the last step it stays until you press Finish
            or Ctrl-C.

    Raises:
        InputError: the dataset cannot be read, or `out` not written.
        CheckpointError: with `resume`, the checkpoint is missing, broken or of another run.
        ConfigError: with `tensorboard`, it is not installed.
        EngineError: the engine is not available.
    """
    dataset, checkpoint = _check_options(options)
    with claim_folder(options.out), join_processes(options.device) as processes:
        processes.require_shares("the rays of a step", options.rays)
        if viewer is not None:
            processes.require_alone("a viewer")
        if options.dataset is None and processes.is_first:
            write_dataset(options.out / OWN, dataset)
        training = Training(dataset, options, processes)
        if checkpoint is not None:
            _CHECKPOINTS.restore(training, checkpoint)
        return _fit(training, options, watch, viewer)


def _fit(training: Training, options: SceneOptions, watch: Watch | None, viewer: Viewer | None) -> SceneReached:
    dataset, processes = training.dataset, training.processes

    def save() -> Path:
        return _CHECKPOINTS.save(training)

    with stop_on_interrupt() as stop, one_torch_thread():
        if viewer is not None:
            viewer.begin(training, stop)
            watch = viewer.watching(watch)
        taken, seconds = take_steps(training, save, watch, stop, processes)
        if viewer is not None:
            viewer.tell("writing")
        files = list[Path]()
        is_new = processes.is_first and (bool(taken) or not is_written(options.out, FILES))
        if is_new:
            # The checkpoint first, since it cannot be made again.
            files = [save()]
        training.look()
        evaluation = evaluate_model(training)
        training.trainer.log(psnr=evaluation.psnr, ssim=evaluation.ssim)
        training.trainer.close()
        if is_new:
            files = [*write_all(options.out, training, evaluation, seconds), *files]
        if viewer is not None:
            viewer.stay(options.out)
        processes.wait()
    plain = summarize_picture_run(training, evaluation.psnr, taken, seconds, files, evaluation.flat_psnr)
    return SceneReached(**vars(plain), ssim=evaluation.ssim, held_out=len(dataset.test))


def _check_options(options: SceneOptions) -> tuple[Dataset, dict[str, Any] | None]:
    """Check everything that can be checked, before anything is started or written."""
    require_device(options.device)
    if options.engine is not None:
        get(options.engine)
    sizes = {"size": options.size} if options.dataset is None else {}
    numbers = {"rays": options.rays, "samples": options.samples, "steps": options.steps}
    require_affordable(_estimate_cost(options), options.device, **numbers, **sizes)
    dataset = own_scene(options.size) if options.dataset is None else read_dataset(options.dataset, options.size)
    _require_seen(dataset, options)
    checkpoint = _CHECKPOINTS.load(dataset, options) if options.resume else None
    if options.dataset is not None:
        for name in (*dataset.train.names, *dataset.test.names):
            require_apart("dataset's picture", options.dataset / name, options.out, FILES)
    require_writable(options.out)
    return dataset, checkpoint


def _estimate_cost(options: SceneOptions) -> Cost:
    """At least: the rays of a step, of whose samples a twentieth is not empty, and the scene of our own if rendered."""
    scene = estimate_own_scene_cost(options.size) if options.dataset is None else Cost(0.0, 0.0)
    samples = options.rays * (1 + options.samples / 20)
    # Bytes: position, direction, thickness, density, colour, and some of their gradients.
    a_sample = 16 * 4.0
    return Cost(scene.memory + samples * a_sample, scene.seconds + options.steps * (1e-3 + samples * 1e-8))


def _require_seen(dataset: Dataset, options: SceneOptions) -> None:
    """Raise InputError if no camera that is learned from sees the box."""
    origins, directions = dataset.train.some_rays()
    if Box((options.bound, options.bound, options.bound)).crossing(origins, directions).isfinite().any():
        return
    places = dataset.train.poses[:, :3, 3]
    low, high = places.amin(0).tolist(), places.amax(0).tolist()
    rows = [
        ("the box", f"-{options.bound:g} to {options.bound:g} on each axis"),
        ("cameras", ", ".join(f"{axis} {a:.3g} to {b:.3g}" for axis, a, b in zip("xyz", low, high, strict=True))),
    ]
    raise InputError(refusal("no camera sees the box of the scene", rows, "Give a larger --bound."))
