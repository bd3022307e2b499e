"""A whole run: check everything, learn, evaluate held-out views, and write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ...engines import get
from .._claim import claim_folder
from .._cost import Cost, require_affordable
from .._files import require_writable
from .._interrupt import stop_on_interrupt
from .._loop import is_written, require_apart, require_device, summarize_picture_run, take_steps
from .._progress import Watch
from .._threads import one_torch_thread
from ..scenes import (
    Dataset,
    SceneCheckpoints,
    SceneReached,
    Viewer,
    estimate_own_scene_cost,
    evaluate_model,
    look,
    own_scene,
    read_dataset,
    write_dataset,
)
from ._options import SplatOptions
from ._pictures import FILES, write_all
from ._training import Training

OWN = "scene"
"""The folder in `out` for the built-in scene, written as a dataset."""

_CHECKPOINTS = SceneCheckpoints(
    "tinsmith fit-splats 1", ("gaussians", "most", "degree", "strategy", "background", "seed")
)


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
    dataset, checkpoint = _check_options(options)
    with (
        claim_folder(options.out),
        stop_on_interrupt() as stop,
        one_torch_thread(),
        _same_bits(options.device),
    ):
        if options.dataset is None:
            write_dataset(options.out / OWN, dataset)
        training = Training(dataset, options)
        if checkpoint is not None:
            _CHECKPOINTS.restore(training, checkpoint)

        def save() -> Path:
            return _CHECKPOINTS.save(training)

        if viewer is not None:
            viewer.begin(training, stop)
            watch = viewer.watching(watch)
        taken, seconds = take_steps(training, save, watch, stop)
        if viewer is not None:
            viewer.tell("writing")
        files = list[Path]()
        is_new = bool(taken) or not is_written(options.out, FILES)
        if is_new:
            # The checkpoint first, since it cannot be made again.
            files = [save()]
        look(training)
        evaluation = evaluate_model(training)
        if is_new:
            files = [*write_all(options.out, training, evaluation, seconds), *files]
        if viewer is not None:
            viewer.stay(options.out)
    plain = summarize_picture_run(training, evaluation.psnr, taken, seconds, files, evaluation.flat_psnr)
    return SceneReached(**vars(plain), ssim=evaluation.ssim, held_out=len(dataset.test))


def _check_options(options: SplatOptions) -> tuple[Dataset, dict[str, Any] | None]:
    """Check everything that can be checked, before anything is started or written."""
    require_device(options.device)
    if options.engine is not None:
        get(options.engine)
    sizes = {"size": options.size} if options.dataset is None else {}
    numbers = {"gaussians": options.gaussians, "steps": options.steps}
    require_affordable(_estimate_cost(options), options.device, **numbers, **sizes)
    # With several threads, steps beside other busy processes take ten times as long.
    with one_torch_thread():
        dataset = own_scene(options.size) if options.dataset is None else read_dataset(options.dataset, options.size)
    checkpoint = _CHECKPOINTS.load(dataset, options) if options.resume else None
    if options.dataset is not None:
        for name in (*dataset.train.names, *dataset.test.names):
            require_apart("dataset's picture", options.dataset / name, options.out, FILES)
    require_writable(options.out)
    return dataset, checkpoint


def _estimate_cost(options: SplatOptions) -> Cost:
    """At least: each Gaussian's numbers with gradient and two moments, and the scene of our own if rendered."""
    scene = estimate_own_scene_cost(options.size) if options.dataset is None else Cost(0.0, 0.0)
    floats, copies = 11 + 3 * (options.degree + 1) ** 2, 4
    memory = options.gaussians * floats * copies * 4.0
    return Cost(scene.memory + memory, scene.seconds + options.steps * (1e-3 + options.gaussians * 2e-7))


@contextmanager
def _same_bits(device: str) -> Iterator[None]:
    """Within, sums have one order on the CPU. A GPU's threads add in any, and torch has no other way there."""
    if device != "cpu":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
