"""The moving average and the recovered volume: they say what is right, and reach what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *options: str, cwd: Path) -> str:
    """What an example prints."""
    env = os.environ | {"OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, EXAMPLES / name, *options]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_moving_average_is_right_in_three_ways_and_wrong_in_the_naive_one(tmp_path):
    lines = run("01_moving_average.py", "--quick", cwd=tmp_path).splitlines()
    verdicts = {line[:36].strip(): line.split()[-1] for line in lines if line.endswith(("right", "WRONG"))}
    assert verdicts == {
        "torch, step by step": "right",
        "Taichi's reverse mode, in one cell": "WRONG",
        "the same kernel as an op": "right",
        "1. all steps in an array": "right",
        "2. a launch a step": "right",
        "3. gradient by hand": "right",
    }


def test_a_volume_comes_into_sight(tmp_path):
    reached = decibels(run("02_recover_a_volume.py", "--quick", cwd=tmp_path))
    assert reached[0] < 15 and reached[-1] > 22
    for name in ("views.png", "left_out.png", "tables.png"):
        with Image.open(tmp_path / "recovered" / name) as picture:
            assert picture.width > 400


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_view_left_out_is_as_good_as_promised(tmp_path):
    out = run("02_recover_a_volume.py", cwd=tmp_path)
    found = re.search(r"correlation ([\d.]+)", out)
    assert decibels(out)[-1] > 35
    assert found and float(found[1]) > 0.9


def decibels(out: str) -> list[float]:
    """Of the view left out, now and then."""
    return [float(number) for number in re.findall(r"the view left out: +([\d.]+) dB", out)]
