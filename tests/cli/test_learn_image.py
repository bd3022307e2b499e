"""`tinsmith learn-image`: its words, its options and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tinsmith.apps.learn_image import find_shipped_configs
from tinsmith.cli import app
from tinsmith.cli._learn_image import _NAMES

SMALL = ("--size", 32, "--steps", 5, "--batch-size", 64)


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 32, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(
        '{"encoding": {"otype": "Identity"}, /* small */ "network": {"n_neurons": 8, "n_hidden_layers": 1}}'
    )
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["learn-image", *map(str, arguments)])


def test_it_lists_the_files_it_wrote(photo, config, tmp_path):
    done = run(photo, config, "--out", tmp_path / "out", *SMALL)
    assert done.exit_code == 0, done.output
    assert "dB after 5 steps" in done.output
    for name in ("learned.png", "error.png", "learning.gif", "curve.png", "summary.json", "checkpoint.safetensors"):
        assert name in done.output and (tmp_path / "out" / name).is_file()


def test_it_can_be_quiet_and_resume(photo, config, tmp_path):
    done = run(photo, config, "--out", tmp_path / "out", *SMALL, "--quiet")
    assert (done.exit_code, done.output) == (0, "")
    done = run(photo, config, "--out", tmp_path / "out", *SMALL, "--resume")
    assert done.exit_code == 0 and "raise --steps" in done.output


@pytest.mark.costly
def test_blocks_and_shipped_configurations_by_name(photo, tmp_path):
    done = run(photo, "frequency", "--out", tmp_path / "out", *SMALL, "--blocks", "2x3", "-q")
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["configuration"] == "frequency" and summary["grid_shape"] == [2, 3] and summary["seconds"] > 0


def test_a_shipped_configuration_is_shown():
    for name, path in find_shipped_configs().items():
        done = run("--show", name)
        assert (done.exit_code, done.output) == (0, path.read_text())
    done = run("--show", "hashgrid")
    assert done.exit_code == 2 and "is not one of" in done.output


def test_help_names_the_configurations():
    assert _NAMES.split(", ") == list(find_shipped_configs())


def test_a_configuration_passed_as_the_image_is_refused(config, tmp_path):
    for given in ("networks", config):
        done = run(given, "--out", tmp_path / "out")
        assert done.exit_code == 2 and f"Write `learn-image default {given}`" in done.output


def test_a_run_that_learned_nothing_says_so(photo, config, tmp_path):
    text = config.read_text().replace("{", '{"optimizer": {"otype": "Adam", "learning_rate": 1000.0}, ', 1)
    config.write_text(text)
    done = run(photo, config, "--out", tmp_path / "out", "--size", 32, "--steps", 30, "--batch-size", 64)
    assert done.exit_code == 0 and "not better than a single color" in done.output and "learning rate" in done.output


@pytest.mark.parametrize("blocks", ["2", "2x", "2x0", "axb", "2x3x4", "-1x2"])
def test_invalid_blocks_are_refused(photo, tmp_path, blocks):
    done = run(photo, "--out", tmp_path / "out", f"--blocks={blocks}")
    assert done.exit_code == 2 and "16x14" in done.output
    assert not (tmp_path / "out").exists()


def test_it_reports_invalid_input(photo, config, tmp_path):
    out = ("--out", tmp_path / "out")
    for arguments, words in (
        ((tmp_path / "none.jpg",), "the image does not exist"),
        ((photo, "hashgrid"), "Did you mean `hash-grid`?"),
        ((photo, config, "--resume"), "there is no checkpoint to resume from"),
    ):
        done = run(*arguments, *out)
        assert done.exit_code == 2 and words in done.output and "Traceback" not in done.output
    config.write_text('{"encoding": {"otype": "HashGrid", "log2_hash_map_size": 12}}')
    done = run(photo, config, *out)
    assert done.exit_code == 2
    assert f"{config}: encoding.log2_hash_map_size" in done.output and "`log2_hashmap_size`" in done.output


def test_the_pages_address_is_printed_and_ctrl_c_writes_results(photo, config, tmp_path):
    """The whole command in a process of its own, 80 columns wide."""
    out = tmp_path / "out"
    script = "import sys; from tinsmith.cli import app; app(sys.argv[1:])"
    options = ["--live", "--steps", "1000000", "--size", "32", "--batch-size", "64", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-u", "-c", script, "learn-image", str(photo), str(config), *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    ) as process:
        try:
            first = process.stdout.readline()
            url = next(word for word in first.split() if word.startswith("http://127.0.0.1:"))
            for _ in range(1200):
                with urllib.request.urlopen(url + "state", timeout=20) as answer:
                    state = json.loads(answer.read())
                if state.get("step", 0) > 2:
                    break
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            said = process.stdout.read()
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert "--resume goes on from there" in said and "learned.png" in said
    assert max(len(line) for line in said.splitlines() if line.startswith("learning ")) <= 80
    assert (out / "checkpoint.safetensors").is_file()
