"""The fit itself: it gets better, writes what it says, and goes on where it was stopped."""

from __future__ import annotations

import dataclasses
import json
import signal

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

from support.folders import StopAt, list_names, read_contents, read_pixels, read_without_times
from tinsmith import reference
from tinsmith.apps._photo import load_photo
from tinsmith.apps.fit_image import FitOptions, fit_image
from tinsmith.cli import app

FILES = {
    "fitted.png",
    "comparison.png",
    "fit.gif",
    "curve.png",
    "report.html",
    "gaussians.safetensors",
    "summary.json",
    "checkpoint.safetensors",
}


def test_a_fit_improves_and_writes_the_files_it_lists(engine, options):
    seen = []
    reached = fit_image(options(engine=engine), watch=lambda *state: seen.append(state))
    steps, totals, psnrs = zip(*seen, strict=True)
    assert steps == tuple(range(41)) and set(totals) == {40}
    assert psnrs[-1] > psnrs[1] + 8
    assert reached.psnr == pytest.approx(psnrs[-1], abs=1.5)
    assert (reached.step, reached.steps, reached.interrupted) == (40, 40, False)
    assert {path.name for path in reached.files} == list_names(options().out) == FILES


def test_the_files_hold_the_fit(engine, options, photo):
    reached = fit_image(options(engine=engine))
    out = options().out
    fitted = read_pixels(out / "fitted.png")
    assert fitted.shape == (36, 48, 3)
    with Image.open(photo) as original:
        original.thumbnail((48, 48), Image.Resampling.LANCZOS)
        error = np.square((np.asarray(original, float) - fitted) / 255).mean()
    assert reached.psnr == pytest.approx(-10 * np.log10(error))
    with safe_open(out / "gaussians.safetensors", "pt") as file:
        assert file.metadata()["h"] == "36" and file.metadata()["photo"] == "disc.png"
    image = reference.splat(**load_file(out / "gaussians.safetensors"), h=36, w=48)
    assert np.abs((image.clamp(0, 1) * 255).numpy() - fitted).max() < 1.5  # the stored Gaussians are the picture
    with Image.open(out / "fit.gif") as film:
        assert film.n_frames > 10 and film.size == (48, 36)


def test_a_resumed_fit_equals_an_uninterrupted_one_bit_for_bit(engine, options, tmp_path):
    whole = options(engine=engine, out=tmp_path / "whole")
    fit_image(whole)
    halves = dataclasses.replace(whole, out=tmp_path / "halves")
    stopped = fit_image(halves, watch=StopAt(17))
    assert stopped.interrupted and stopped.step == 17
    assert list_names(halves.out) == FILES
    resumed = fit_image(dataclasses.replace(halves, resume=True))
    assert resumed.step == 40 and not resumed.interrupted
    assert read_without_times(halves.out) == read_without_times(whole.out)


def test_the_summary_has_the_options_and_results(options):
    reached = fit_image(options())
    summary = json.loads((options().out / "summary.json").read_text())
    assert summary["psnr_db"] == reached.psnr and summary["seconds"] == reached.seconds > 0
    assert (summary["photograph"], summary["width"], summary["height"]) == ("disc.png", 48, 36)
    assert summary["step"] == summary["steps"] == 40 and summary["gaussians"] == 80 and summary["parameters"] == 80 * 9


def test_sixteen_bit_gray_images_are_read_as_eight_bit(options, tmp_path):
    values = np.linspace(0, 65535, 48 * 36).reshape(36, 48).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    photo = load_photo(tmp_path / "deep.png", 48)
    assert photo.pixels.shape == (36, 48, 3)
    assert np.abs(photo.pixels[..., 0].numpy() - values / 257).max() <= 0.5


def test_a_fit_can_be_stopped_before_the_first_step(options):
    stopped = fit_image(options(), watch=StopAt(0))
    assert stopped.step == 0 and list_names(options().out) == FILES
    assert fit_image(options(resume=True)).step == 40


def test_a_finished_fit_can_be_continued(options):
    fit_image(options(steps=20))
    before = {path: path.stat().st_mtime_ns for path in options().out.iterdir()}
    for steps in (20, 10):
        again = fit_image(options(steps=steps, resume=True))
        assert again.step == 20 and again.seconds == 0 and again.files == ()
    assert {path: path.stat().st_mtime_ns for path in options().out.iterdir()} == before
    (options().out / "fitted.png").unlink()
    assert {path.name for path in fit_image(options(steps=20, resume=True)).files} == FILES
    assert fit_image(options(steps=30, resume=True)).step == 30


def test_ctrl_c_works_as_before_afterwards(options):
    before = signal.getsignal(signal.SIGINT)
    fit_image(options(steps=3), watch=StopAt(2))
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def heard():
    """Let Ctrl-C raise KeyboardInterrupt, even if the tests run under `nohup` or `&`, which turn it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_a_second_ctrl_c_interrupts_at_once(options):
    def impatient(step, steps, psnr):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit_image(options(), watch=impatient)


def test_torchs_threads_are_as_before_afterwards(options):
    before, during = torch.get_num_threads(), []
    fit_image(options(steps=2), watch=lambda *_: during.append(torch.get_num_threads()))
    assert torch.get_num_threads() == before and set(during) == {1}


@pytest.mark.parametrize("size", [1, 7])
def test_there_may_be_more_gaussians_than_pixels(options, size):
    reached = fit_image(options(size=size, gaussians=200, steps=5))
    assert reached.step == 5 and list_names(options().out) == FILES


def test_the_same_seed_gives_the_same_fit(options, tmp_path):
    for name, seed in (("one", 1), ("same", 1), ("two", 2)):
        fit_image(options(out=tmp_path / name, seed=seed, steps=3))
    assert read_without_times(tmp_path / "one") == read_without_times(tmp_path / "same")
    assert read_contents(tmp_path / "one")["fitted.png"] != read_contents(tmp_path / "two")["fitted.png"]


def run(*arguments):
    return CliRunner().invoke(app, ["fit-image", *map(str, arguments)])


SMALL = ("--gaussians", 50, "--steps", 5, "--size", 32)


def test_the_command_lists_the_files_it_wrote(photo, tmp_path):
    done = run(photo, "--out", tmp_path / "out", *SMALL)
    assert done.exit_code == 0, done.output
    assert "dB after 5 steps" in done.output
    assert all(name in done.output for name in FILES)


def test_the_command_can_be_quiet(photo, tmp_path):
    done = run(photo, "--out", tmp_path / "out", *SMALL, "--quiet")
    assert (done.exit_code, done.output) == (0, "")


def test_the_command_resumes(photo, tmp_path):
    out = tmp_path / "out"
    run(photo, "--out", out, *SMALL)
    done = run(photo, "--out", out, *SMALL, "--resume")
    assert done.exit_code == 0 and "raise --steps" in done.output and "Nothing was written" in done.output


def test_the_command_overwrites_an_earlier_run_only_on_request(photo, tmp_path):
    arguments = (photo, "--out", tmp_path / "out", *SMALL)
    run(*arguments)
    before = read_contents(tmp_path / "out")
    done = run(*arguments, "--seed", 1)
    assert done.exit_code == 2 and "the output folder holds an earlier run" in done.output
    assert read_contents(tmp_path / "out") == before
    done = run(*arguments, "--seed", 1, "--overwrite")
    assert done.exit_code == 0 and read_contents(tmp_path / "out")["fitted.png"] != before["fitted.png"]


def test_the_command_reports_invalid_input(tmp_path):
    done = run(tmp_path / "none.jpg", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "the image does not exist" in done.output and "Traceback" not in done.output


@pytest.mark.gpu
def test_the_fit_runs_on_cuda(engine, options):
    reached = fit_image(options(engine=engine, device="cuda"))
    assert reached.psnr > 20
    assert list_names(options().out) == FILES


def test_torchs_default_dtype_does_not_matter(options, tmp_path):
    fit_image(options(out=tmp_path / "single", steps=3))
    torch.set_default_dtype(torch.float64)
    try:
        fit_image(options(out=tmp_path / "double", steps=3))
    finally:
        torch.set_default_dtype(torch.float32)
    assert read_without_times(tmp_path / "single") == read_without_times(tmp_path / "double")


@pytest.mark.costly
def test_the_defaults_fit_the_default_photograph(tmp_path):
    reached = fit_image(FitOptions(tmp_path))
    # The bar is 30 dB; 35.6 measured. A drop below 35 is a regression to look into.
    assert reached.psnr > 35
    assert read_pixels(tmp_path / "fitted.png").shape == (256, 218, 3)
