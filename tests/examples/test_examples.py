"""The examples run at reduced size, and draw what they drew when somebody looked at it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from support.pictures import TOLERANCE, measure_difference

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
PICTURES = Path(__file__).with_name("pictures")


# What each must have said ------------------------------------------------------------------------
def found_the_blur(printed):
    assert "the gradient of op `blur`, generated from the kernel's source: right" in printed
    assert float(re.findall(r"weights off by ([\d.]+)%", printed)[-1]) < 15


def averaged(printed):
    lines = [line for line in printed.splitlines() if line.endswith(("right", "WRONG"))]
    assert {line[:36].strip(): line.split()[-1] for line in lines} == {
        "torch, step by step": "right",
        "Taichi's reverse mode, in one cell": "WRONG",
        "the same kernel as an op": "right",
        "1. all steps in an array": "right",
        "2. a launch a step": "right",
        "3. gradient by hand": "right",
    }


def recovered(printed):
    reached = decibels(printed)
    assert reached[0] < 15 and reached[-1] > 22


def walked(printed):
    assert float(re.findall(r"([-\d.]+) cm", printed)[-1]) > 15


def painted(printed):
    assert "trained alone: 1 network changed" in printed
    assert float(re.findall(r"([\d.]+) dB", printed)[-1]) > 14


def splatted(printed):
    reached = decibels(printed)
    assert reached[0] < 15 and reached[-1] > 27


SAID = {
    "01_first_op": found_the_blur,
    "02_moving_average": averaged,
    "03_recover_a_volume": recovered,
    "04_learn_to_walk": walked,
    "05_networks_paint": painted,
    "06_gaussians": splatted,
}


def decibels(printed):
    """Return the PSNR of the held-out view, before and after training."""
    return [float(number) for number in re.findall(r"the view left out: +([\d.]+) dB", printed)]


# Running them ------------------------------------------------------------------------------------
def run(path, *arguments):
    """Run an example in a process of its own; what it printed."""
    env = os.environ | {"ENABLE_TAICHI_HEADER_PRINT": "0", "TI_LOG_LEVEL": "error", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", path, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.thinned(6)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_draws_its_pictures(example, tmp_path):
    printed = run(example, "--quick", "--out", str(tmp_path))
    SAID[example.stem](printed)
    drawn = sorted(tmp_path.glob("*.png"))
    assert drawn
    for path in drawn:
        assert path.name in printed
        distance = measure_difference(Image.open(path), Image.open(PICTURES / path.name))
        assert distance < TOLERANCE, f"{path.name} differs by {distance:.1f} from {PICTURES / path.name}"


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.png")), ids=lambda path: path.stem)
def test_another_picture_would_be_noticed(path):
    image = Image.open(path)
    assert measure_difference(image, image) == 0
    assert measure_difference(image, image.rotate(180)) > TOLERANCE


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_program_of_cells_with_words(example):
    text = example.read_text(encoding="utf-8")
    assert text.startswith('"""') and text.count("\n# %% ") >= 4 and f"python examples/{example.name}" in text


@pytest.mark.costly
@pytest.mark.timeout(900)
def test_the_view_left_out_is_as_good_as_promised(tmp_path):
    printed = run(EXAMPLES[2], "--out", str(tmp_path))
    assert decibels(printed)[-1] > 35
    assert float(re.findall(r"correlation ([\d.]+)", printed)[0]) > 0.9
