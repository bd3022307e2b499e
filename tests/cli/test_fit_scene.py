"""`tinsmith fit-scene`: its words, its options and its exit codes."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tinsmith.cli import app

SMALL = ("--steps", 2, "--rays", 64, "--samples", 8)


@pytest.fixture
def folder(tmp_path):
    """Write three pictures of noise from three sides."""
    draw, frames = np.random.default_rng(0), []
    for number in range(3):
        Image.fromarray(draw.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(tmp_path / f"r_{number}.png")
        c, s = math.cos(number), math.sin(number)
        matrix = [[c, 0, s, 3 * s], [0, 1, 0, 0], [-s, 0, c, 3 * c], [0, 0, 0, 1]]
        frames.append({"file_path": f"./r_{number}", "transform_matrix": matrix})
    (tmp_path / "transforms.json").write_text(json.dumps({"camera_angle_x": 0.7, "frames": frames}))
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["fit-scene", *map(str, arguments)])


@pytest.mark.costly
def test_it_lists_written_files_and_has_quiet_and_resume(folder, tmp_path):
    out = ("--out", tmp_path / "out", *SMALL)
    done = run(folder, *out)
    assert done.exit_code == 0, done.output
    assert "Means of 1 held-out view: SSIM 0." in done.output and "dB after 2 steps" in done.output
    for name in ("comparison.png", "depth.png", "turntable.gif", "summary.json", "checkpoint.safetensors"):
        assert name in done.output and (tmp_path / "out" / name).is_file()
    done = run(folder, *out, "--resume")
    assert done.exit_code == 0 and "raise --steps" in done.output
    done = run(folder, *out, "--overwrite", "--quiet", "--background", "black", "--distortion", 0.01)
    assert (done.exit_code, done.output) == (0, "")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["background"], summary["distortion"]) == ("black", 0.01)


def test_it_reports_invalid_input(folder, tmp_path):
    out = ("--out", tmp_path / "out")
    (folder / "r_1.png").write_bytes(b"no picture")
    for arguments, words in (
        ((tmp_path / "none",), "the dataset does not exist"),
        (("--size", 16, "--resume"), "there is no checkpoint to resume from"),
        ((folder,), "r_1.png"),
        ((folder, "--bound", "-1"), "`bound` has an invalid value"),
    ):
        done = run(*arguments, *out)
        assert done.exit_code == 2 and words in done.output and "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.costly  # tests/cli/test_learn_image.py interrupts a command in every run
def test_ctrl_c_writes_results_and_the_viewers_address_is_printed(folder, tmp_path):
    """The whole command in a process of its own, 80 columns wide."""
    pytest.importorskip("viser", reason="viser, of the extra `view`, serves the viewer")
    out = tmp_path / "out"
    script = "import sys; from tinsmith.cli import app; app(sys.argv[1:])"
    options = ["--view", "--steps", "1000000", "--rays", "64", "--samples", "8", "--out", str(out), "--tensorboard"]
    with subprocess.Popen(
        [sys.executable, "-u", "-c", script, "fit-scene", str(folder), *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    ) as process:
        try:
            assert "http://127.0.0.1:" in process.stdout.readline()
            for _ in range(600):
                if list(out.glob("tensorboard/*")):  # 50 steps were taken
                    break
                time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            said = process.stdout.read()
            assert process.wait(120) == 130
        finally:
            process.kill()
    assert "--resume goes on from there" in said and "turntable.gif" in said and "viser" not in said
    assert max(len(line) for line in said.splitlines() if line.startswith("fitting ")) <= 80
    assert "rays/s" in said
    assert (out / "checkpoint.safetensors").is_file()
