"""The examples run at reduced size, and draw what they drew when somebody looked at it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[2] / "examples"
PICTURES = Path(__file__).with_name("pictures")
WITH_PICTURES = ("03_first_op", "04_learn_to_walk", "05_networks_paint")
TOLERANCE = 3.0
"""Of 255, the mean difference of a picture's pixels, seen at a quarter of its size."""


def run(name, *arguments):
    """Run an example in a process of its own; what it printed."""
    env = os.environ | {"ENABLE_TAICHI_HEADER_PRINT": "0", "TI_LOG_LEVEL": "error", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", EXAMPLES / f"{name}.py", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def difference(one, other):
    """How different two pictures look, in grey values of a pixel."""
    assert one.size == other.size
    small = (max(1, one.width // 4), max(1, one.height // 4))
    pixels = [
        np.asarray(image.convert("RGB").resize(small, Image.Resampling.BOX), dtype=float) for image in (one, other)
    ]
    return np.abs(pixels[0] - pixels[1]).mean()


@pytest.mark.parametrize("name", WITH_PICTURES)
def test_an_example_draws_its_pictures(name, tmp_path):
    printed = run(name, "--quick", "--out", str(tmp_path))
    drawn = sorted(tmp_path.glob("*.png"))
    assert drawn
    for path in drawn:
        assert path.name in printed
        found = difference(Image.open(path), Image.open(PICTURES / path.name))
        assert found < TOLERANCE, f"{path.name} differs by {found:.1f} from {PICTURES / path.name}"


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.png")), ids=lambda path: path.stem)
def test_another_picture_would_be_noticed(path):
    image = Image.open(path)
    assert difference(image, image) == 0
    assert difference(image, image.rotate(180)) > TOLERANCE


def test_every_example_is_a_program_of_cells_with_words():
    for name in WITH_PICTURES:
        text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        assert text.startswith('"""') and text.count("\n# %% ") >= 4 and f"python examples/{name}.py" in text
