"""Simulations: their gradients are right, and a run gets better, writes what it says and resumes to the bit."""

from __future__ import annotations

import dataclasses
import importlib
import json

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from support.folders import StopAt, list_names, read_without_times
from support.pictures import check_caption
from tinsmith._errors import CheckpointError, InputError
from tinsmith.apps import SIMULATIONS
from tinsmith.apps._pictures import add_caption
from tinsmith.apps.simulate import SimulateOptions, simulate
from tinsmith.cli import app

FILES = {"simulation.png", "simulation.gif", "curve.png", "report.html", "summary.json", "checkpoint.safetensors"}
STEPS = {"billiards": 160, "elastic-walker": 30, "jelly-video": 60, "smoke": 5, "spring-robot": 12, "wave-source": 40}


def made(name, engine, **given):
    file, kind = SIMULATIONS[name].place.split(":")
    torch.manual_seed(0)
    return getattr(importlib.import_module(f"tinsmith.apps.simulate.{file}"), kind)(engine, STEPS[name], **given)


@pytest.mark.thinned(4)
@pytest.mark.usefixtures("lang64")
@pytest.mark.parametrize("name", SIMULATIONS)
def test_gradients_are_those_of_central_differences(engine, name):
    simulation = made(name, engine).double()
    parameters = list(simulation.parameters())
    with torch.no_grad():
        for one in parameters:  # zeros lie on kinks of interpolation, and have no slope there
            one += 0.01 * torch.randn_like(one)
    simulation.loss().backward()
    draw = torch.Generator().manual_seed(1)
    for one in parameters:
        for _ in range(3):
            direction = torch.randn(one.shape, generator=draw, dtype=one.dtype)
            ends = []
            for step in (1e-7, -1e-7):
                with torch.no_grad():
                    one += step * direction
                    ends.append(simulation.loss())
                    one -= step * direction
            slope = (ends[0] - ends[1]) / 2e-7
            assert one.grad.abs().max() > 0
            torch.testing.assert_close((one.grad * direction).sum(), slope, rtol=1e-5, atol=1e-8)


@pytest.fixture
def options(tmp_path):
    """Return options of a small run, changed by name: `options(name="smoke")`."""

    def make(**changes):
        given = {"out": tmp_path / "out", "name": "wave-source", "iterations": 6} | changes
        return SimulateOptions(**({"steps": STEPS[given["name"]]} | given))

    return make


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", SIMULATIONS)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(engine, options, tmp_path, name):
    whole = options(name=name, engine=engine, out=tmp_path / "whole", iterations=4)
    simulate(whole)
    halves = dataclasses.replace(whole, out=tmp_path / "halves")
    stopped = simulate(halves, watch=StopAt(2))
    assert stopped.interrupted and stopped.step == 2
    assert list_names(halves.out) == FILES
    resumed = simulate(dataclasses.replace(halves, resume=True))
    assert resumed.step == 4 and not resumed.interrupted
    assert read_without_times(halves.out) == read_without_times(whole.out)


def test_a_run_improves_and_writes_the_files_it_lists(engine, options):
    reached = simulate(options(engine=engine, iterations=20))
    assert reached.figures[1] < 0.95 * reached.figures[0]
    assert {path.name for path in reached.files} == list_names(options().out) == FILES
    summary = json.loads((options().out / "summary.json").read_text())
    assert (summary["before"], summary["after"]) == reached.figures and summary["iteration"] == 20
    with Image.open(options().out / "simulation.gif") as film:
        assert film.n_frames > 10
        check_caption(film, 256)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SIMULATIONS)
def test_films_are_wide_and_their_captions_fit(engine, name):
    with torch.no_grad():
        simulation = made(name, engine)
        frames, figure = simulation.look()
    assert frames[0].shape[1] >= 480
    title = f"{name}, iteration 9999: {simulation.figure.format(max(figure, 0.1))}"
    plain, captioned = (add_caption(frame, title, simulation.caption) for frame in (frames[0], frames[-1]))
    top = len(plain) - len(frames[0])
    assert torch.equal(captioned[top:], frames[-1]) and torch.equal(plain[:top], captioned[:top])
    assert (plain[:top] < 64).any() and (plain[:top, -6:] == 255).all()


@pytest.mark.costly
def test_the_same_seed_gives_the_same_run(options, tmp_path):
    given = {"name": "elastic-walker", "iterations": 1}
    for name, seed in (("one", 1), ("same", 1), ("two", 2)):
        simulate(options(out=tmp_path / name, seed=seed, **given))
    one, same, two = (read_without_times(tmp_path / name) for name in ("one", "same", "two"))
    assert one == same and one["checkpoint.safetensors"] != two["checkpoint.safetensors"]


def test_invalid_options_are_refused(options):
    with pytest.raises(InputError, match="`iterations` is too small"):
        options(iterations=0)
    with pytest.raises(CheckpointError, match="there is no checkpoint to resume from"):
        simulate(options(resume=True))
    simulate(options(iterations=1))
    with pytest.raises(CheckpointError, match="belongs to another run"):
        simulate(options(steps=41, resume=True))


def run(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def test_the_command_lists_names_and_guesses_at_wrong_ones():
    listed = run()
    assert listed.exit_code == 0 and all(name in listed.output for name in SIMULATIONS)
    done = run("biliards")
    assert done.exit_code == 2 and "Did you mean `billiards`?" in done.output


def test_the_command_says_what_it_reached_and_resumes(tmp_path):
    small = ("wave-source", "--steps", 20, "--iterations", 2, "--out", tmp_path / "out")
    done = run(*small)
    assert done.exit_code == 0, done.output
    assert "after 2 iterations" in " ".join(done.output.split()) and all(name in done.output for name in FILES)
    done = run(*small, "--resume")
    assert done.exit_code == 0 and "raise --iterations" in done.output and "Nothing was written" in done.output
    done = run(*small, "--overwrite", "--quiet")
    assert (done.exit_code, done.output) == (0, "")
