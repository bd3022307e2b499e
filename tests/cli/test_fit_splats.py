"""`tinsmith fit-splats`: its words, its options and its exit codes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tinsmith.apps import fit_splats, scenes
from tinsmith.cli import app

SMALL = ("--steps", 2, "--gaussians", 20, "--degree", 0)


@pytest.fixture
def folder(tmp_path):
    """Write three pictures of noise from three sides."""
    draw, frames = np.random.default_rng(0), []
    for number in range(3):
        Image.fromarray(draw.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(tmp_path / f"r_{number}.png")
        c, s = np.cos(number), np.sin(number)
        matrix = [[c, 0, s, 3 * s], [0, 1, 0, 0], [-s, 0, c, 3 * c], [0, 0, 0, 1]]
        frames.append({"file_path": f"./r_{number}", "transform_matrix": matrix})
    (tmp_path / "transforms.json").write_text(json.dumps({"camera_angle_x": 0.7, "frames": frames}))
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["fit-splats", *map(str, arguments)])


@pytest.mark.costly
def test_it_lists_written_files_and_has_quiet_and_resume(folder, tmp_path):
    out = ("--out", tmp_path / "out", *SMALL)
    done = run(folder, *out)
    assert done.exit_code == 0, done.output
    assert "Means of 1 held-out view: SSIM" in done.output and "dB after 2 steps" in done.output
    for name in ("comparison.png", "depth.gif", "turntable.gif", "splats.ply", "summary.json"):
        assert name in done.output and (tmp_path / "out" / name).is_file()
    done = run(folder, *out, "--resume")
    assert done.exit_code == 0 and "raise --steps" in done.output
    done = run(folder, *out, "--overwrite", "--quiet", "--background", "black", "--strategy", "mcmc", "--most", 30)
    assert (done.exit_code, done.output) == (0, "")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["background"], summary["strategy"], summary["most"]) == ("black", "mcmc", 30)


def test_the_viewers_address_is_printed_even_with_quiet(folder, tmp_path, monkeypatch):
    @contextmanager
    def page(title, port, say):
        assert (title, port) == ("tinsmith fit-splats", 8123)
        viewer = SimpleNamespace(url="http://127.0.0.1:8123/", title="a viewer")
        viewer.begin = lambda *_: calls.append("begin")
        viewer.make_watch = lambda watch: calls.append("make_watch") or watch
        viewer.finish = lambda write: calls.append("finish") or write()
        yield viewer
        calls.append("closed")

    calls = []
    monkeypatch.setattr(scenes, "viewer_page", page)
    monkeypatch.setattr(fit_splats, "viewer_page", page)
    done = run(folder, "--out", tmp_path / "out", *SMALL, "--view", "--port", 8123, "--quiet")
    assert done.exit_code == 0, done.output
    assert done.output == "Walk around at http://127.0.0.1:8123/ (it stays until Ctrl-C)\n"
    assert calls == ["begin", "make_watch", "finish", "closed"]


def test_it_reports_invalid_input(folder, tmp_path):
    out = ("--out", tmp_path / "out")
    (folder / "r_1.png").write_bytes(b"no picture")
    for arguments, words in (
        ((tmp_path / "none",), "the dataset does not exist"),
        ((folder,), "r_1.png"),
        ((folder, "--most", 3), "`most` is too small"),
        ((folder, "--strategy", "best"), "strategy"),
        ((folder, "--degree", 9), "degree"),
    ):
        done = run(*arguments, *out)
        assert done.exit_code == 2 and words in done.output, done.output
    assert not (tmp_path / "out").exists()
