"""A small photograph, and fits of it that take a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tinsmith.apps.fit_image import FitOptions


@pytest.fixture(scope="session")
def photo(tmp_path_factory) -> Path:
    """A disc on a slope of colours, 60 x 45 pixels."""
    y, x = np.mgrid[0:45, 0:60]
    pixels = np.stack([x * 4, y * 5, 200 - x * 2], -1)
    pixels[(x - 35) ** 2 + (y - 20) ** 2 < 120] = (250, 240, 30)
    path = tmp_path_factory.mktemp("photo") / "disc.png"
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


@pytest.fixture
def options(photo, tmp_path):
    """Options of a small fit, changed by name: `options(steps=5)`."""

    def make(**changes) -> FitOptions:
        return FitOptions(
            **({"out": tmp_path / "out", "image": photo, "gaussians": 80, "steps": 40, "size": 48} | changes)
        )

    return make
