"""A small photograph, and runs of the apps on it that take a second."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from support.live_page import browse  # noqa: F401 - a fixture
from tinsmith.apps.fit_image import FitOptions
from tinsmith.apps.fit_scene import SceneOptions, _field
from tinsmith.apps.fit_splats import SplatOptions
from tinsmith.apps.learn_image import LearnOptions
from tinsmith.apps.scenes._built_in_scene import make_pose, render_picture
from tinsmith.apps.scenes._dataset import write_dataset
from tinsmith.apps.scenes._views import Views, make_dataset


@pytest.fixture(scope="session")
def photo(tmp_path_factory) -> Path:
    """Write a picture of a disc on a slope of colors, 60 x 45 pixels, and return its path."""
    y, x = np.mgrid[0:45, 0:60]
    pixels = np.stack([x * 4, y * 5, 200 - x * 2], -1)
    pixels[(x - 35) ** 2 + (y - 20) ** 2 < 120] = (250, 240, 30)
    path = tmp_path_factory.mktemp("photo") / "disc.png"
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


@pytest.fixture
def options(photo, tmp_path):
    """Return options of a small fit, changed by name: `options(steps=5)`."""

    def make(**changes) -> FitOptions:
        return FitOptions(
            **({"out": tmp_path / "out", "image": photo, "gaussians": 80, "steps": 40, "size": 48} | changes)
        )

    return make


GRID = {
    "loss": {"otype": "L2"},
    "optimizer": {"otype": "EMA", "decay": 0.8, "nested": {"otype": "Adam", "learning_rate": 0.02}},
    "encoding": {"otype": "HashGrid", "n_levels": 4, "log2_hashmap_size": 10, "base_resolution": 8},
    "network": {"n_neurons": 16, "n_hidden_layers": 1},
    "batch_size": 512,
    "steps": 40,
}
FREQUENCY = GRID | {"encoding": {"otype": "Frequency", "n_frequencies": 5}}
ARRAY = FREQUENCY | {"encoding": {"otype": "Frequency", "n_frequencies": 2}, "grid_shape": [3, 5], "batch_size": 64}


@pytest.fixture
def configuration(tmp_path):
    """Return a function that writes a configuration, `configuration(GRID, steps=5)`, and returns its path."""

    def write(*parts, **changes) -> Path:
        whole = {key: value for part in (*parts, changes) for key, value in part.items()}
        path = tmp_path / "configuration.json"
        path.write_text(json.dumps(whole))
        return path

    return write


@pytest.fixture
def learning(photo, tmp_path, configuration):
    """Return options of a small run of learn-image: `learning(ARRAY, steps=5)`."""

    def make(config=GRID, **changes) -> LearnOptions:
        given = {"out": tmp_path / "out", "image": photo, "config": configuration(config), "size": 48}
        return LearnOptions(**(given | changes))

    return make


@pytest.fixture(scope="session")
def scene_folder(tmp_path_factory) -> Path:
    """Render a dataset of the solids of the built-in scene: 12 training views, 3 held out, 24 x 20 pixels."""
    folder = tmp_path_factory.mktemp("scene") / "solids"
    folder.mkdir()
    write_dataset(folder, make_dataset("solids", *small_views()))
    return folder


def small_views():
    """Return the training and test views of that dataset."""
    poses = torch.stack([make_pose(0.53 * number, 0.2 + 0.07 * number) for number in range(15)])
    intrinsics = torch.tensor([[26.0, 0, 12], [0, 26, 10], [0, 0, 1]], dtype=torch.float64).expand(15, 3, 3)
    pictures = torch.stack([render_picture(pose, 26.0, (24, 20)) for pose in poses])
    whole = Views(tuple(f"views/{number}.png" for number in range(15)), pictures, poses, intrinsics)
    held_out = [2, 7, 11]
    return whole.select([number for number in range(15) if number not in held_out]), whole.select(held_out)


@pytest.fixture
def fitting(scene_folder, tmp_path, monkeypatch):
    """Return options of a small run of fit-scene: `fitting(steps=5)`. Its grid is coarse, to be updated quickly."""
    monkeypatch.setattr(_field, "_RESOLUTION", 16)

    def make(**changes) -> SceneOptions:
        given = {"out": tmp_path / "out", "dataset": scene_folder, "steps": 6, "rays": 128, "samples": 24}
        return SceneOptions(**(given | changes))

    return make


@pytest.fixture
def splatting(scene_folder, tmp_path):
    """Return options of a small run of fit-splats: `splatting(steps=5)`."""

    def make(**changes) -> SplatOptions:
        given = {"out": tmp_path / "out", "dataset": scene_folder, "steps": 6, "gaussians": 60, "degree": 1}
        return SplatOptions(**(given | changes))

    return make
