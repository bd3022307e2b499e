"""The run of fit-scene: check the options, learn, evaluate held-out views, and write."""

from __future__ import annotations

from functools import partial

from ..._errors import InputError, refusal
from .._checkpoint import Checkpoints
from .._cost import Cost
from .._progress import Watch
from .._run import one_torch_thread
from ..scenes import PICTURE_FILES, Box, Dataset, SceneReached, Viewer, identify_run, load_scene, run_scene
from ._learner import FieldLearner, SceneOptions

_FORMAT = "tinsmith fit-scene 1"
_SHARED = ("rays", "bound", "samples", "background", "distortion", "seed")


@one_torch_thread()
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
    numbers = {"rays": options.rays, "samples": options.samples, "steps": options.steps}
    dataset = load_scene(options, _estimate_cost(options), **numbers)
    _require_seen(dataset, options)
    make_learner = partial(FieldLearner, dataset, options)
    checkpoints = Checkpoints(options.out, _FORMAT, identify_run(dataset, options, _SHARED))
    shares = ("the rays of a step", options.rays)
    return run_scene(options, dataset, make_learner, checkpoints, PICTURE_FILES, watch, viewer, shares)


def _estimate_cost(options: SceneOptions) -> Cost:
    """Return a lower bound of a run's cost: that of the rays of a step, if a twentieth of their samples is
    not empty.
    """
    samples = options.rays * (1 + options.samples / 20)
    # Bytes: position, direction, thickness, density, color, and some of their gradients.
    a_sample = 16 * 4.0
    return Cost(samples * a_sample, options.steps * (1e-3 + samples * 1e-8))


def _require_seen(dataset: Dataset, options: SceneOptions) -> None:
    """Raise InputError if no camera of the training views sees the box."""
    origins, directions = dataset.train.sample_rays()
    if Box((options.bound, options.bound, options.bound)).intersect(origins, directions).isfinite().any():
        return
    places = dataset.train.poses[:, :3, 3]
    low, high = places.amin(0).tolist(), places.amax(0).tolist()
    rows = [
        ("the box", f"-{options.bound:g} to {options.bound:g} on each axis"),
        ("cameras", ", ".join(f"{axis} {a:.3g} to {b:.3g}" for axis, a, b in zip("xyz", low, high, strict=True))),
    ]
    raise InputError(refusal("no camera sees the box of the scene", rows, "Give a larger --bound."))
