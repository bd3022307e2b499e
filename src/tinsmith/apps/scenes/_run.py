"""The run of every app that learns a scene: load the pictures, then train and write."""

from __future__ import annotations

from collections.abc import Callable, Collection

from .._checkpoint import Checkpoints
from .._cost import Cost
from .._processes import Processes
from .._progress import Watch
from .._run import require_runnable, run_training
from ._built_in_scene import estimate_own_scene_cost, render_own_scene
from ._dataset import read_dataset, write_dataset
from ._learner import SceneLearner, SceneReached, SceneRunOptions
from ._viewer import Viewer
from ._views import Dataset

OWN = "scene"
"""The folder in `out` into which the built-in scene is written as a dataset."""


def load_scene(options: SceneRunOptions, cost: Cost, **numbers: object) -> Dataset:
    """Check that this machine can run an app, and read the dataset or render the built-in scene.

    Args:
        options: the options of the run.
        cost: the cost of the training.
        numbers: the options that the cost grows with, by name.

    Raises:
        InputError: the device, the cost or the dataset does not fit.
        EngineError: the engine is not available.
    """
    if options.dataset is None:
        own = estimate_own_scene_cost(options.size)
        cost = Cost(own.memory + cost.memory, own.seconds + cost.seconds)
        numbers["size"] = options.size
    require_runnable(options, cost, **numbers)
    return render_own_scene(options.size) if options.dataset is None else read_dataset(options.dataset, options.size)


def run_scene(
    options: SceneRunOptions,
    dataset: Dataset,
    make_learner: Callable[[Processes], SceneLearner],
    checkpoints: Checkpoints,
    files: Collection[str],
    watch: Watch | None,
    viewer: Viewer | None,
    shares: tuple[str, int] | None = None,
) -> SceneReached:
    """Train and write as `run_training` does. Before, write the built-in scene as a dataset if it is used."""

    def make(processes: Processes) -> SceneLearner:
        if options.dataset is None and processes.is_first:
            write_dataset(options.out / OWN, dataset)
        return make_learner(processes)

    inputs = []
    if options.dataset is not None:
        names = (*dataset.train.names, *dataset.test.names)
        inputs = [("dataset's picture", options.dataset / name) for name in names]
    return run_training(options, make, checkpoints, files, inputs=inputs, shares=shares, watch=watch, page=viewer)


def identify_run(dataset: Dataset, options: SceneRunOptions, names: Collection[str]) -> dict[str, object]:
    """Return what a resumed run must share with the interrupted one: the pictures, and the options with these names."""
    size = f"{dataset.width} x {dataset.height}"
    shared = {name: getattr(options, name) for name in names}
    return {"dataset": dataset.name, "size": size, "pictures and cameras": dataset.digest, **shared}
