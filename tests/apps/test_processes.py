"""Trainings of several processes, as `torchrun` starts them: the same result, written once."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import tinsmith as ts
from tinsmith.apps._processes import Processes, join_processes, read_launched_processes
from tinsmith.cli import app


def started(arguments, processes, folder):
    """Run a tinsmith command in several processes, and return what it printed."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else []), "-m", "tinsmith", *arguments, "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def weights(folder):
    tensors = load_file(folder / "checkpoint.safetensors")
    return {name: one for name, one in tensors.items() if "model" in name and one.is_floating_point()}


IMAGE = ["learn-image", "default", "frequency", "--size", "24", "--steps", "6", "--batch-size", "64"]
ARRAY = ["learn-image", "default", "networks", "--blocks", "2x3", "--size", "24", "--steps", "6", "--batch-size", "32"]
SCENE = ["fit-scene", "--size", "16", "--steps", "6", "--rays", "64", "--samples", "16"]


@pytest.mark.costly
@pytest.mark.parametrize("command", [IMAGE, ARRAY, SCENE], ids=["image", "array", "scene"])
def test_two_processes_reach_what_one_does(command, tmp_path):
    """Gradients are means over both shares, so steps differ by the order of sums alone."""
    one = started(command, 1, tmp_path / "one")
    two = started(command, 2, tmp_path / "two")
    expected, shared = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert expected and expected.keys() == shared.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(shared[name], tensor, rtol=1e-3, atol=1e-4, msg=name)
    assert "by 2 processes" in two and two.count("Written:") == 1
    assert " processes)" not in one
    summaries = [json.loads((tmp_path / name / "summary.json").read_text(encoding="utf-8")) for name in ("one", "two")]
    assert abs(summaries[0]["psnr_db"] - summaries[1]["psnr_db"]) < 0.05


@pytest.mark.costly
def test_a_run_resumes_with_another_number_of_processes(tmp_path):
    started([*IMAGE[:-4], "--steps", "6", *IMAGE[-2:]], 1, tmp_path / "straight")
    started([*IMAGE[:-4], "--steps", "3", *IMAGE[-2:]], 2, tmp_path / "resumed")
    started([*IMAGE[:-4], "--steps", "6", *IMAGE[-2:], "--resume"], 1, tmp_path / "resumed")
    expected, resumed = (weights(tmp_path / name) for name in ("straight", "resumed"))
    for name, tensor in expected.items():
        torch.testing.assert_close(resumed[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


def test_shares_of_all_processes_add_up_to_the_batch():
    batch = torch.arange(12.0).reshape(2, 6)
    parts = [Processes(rank, 3).share(batch, dim=1) for rank in range(3)]
    assert [tuple(part.shape) for part in parts] == [(2, 2)] * 3
    torch.testing.assert_close(torch.stack(parts, 2).flatten(1), batch)
    assert Processes().share(batch) is batch


def test_a_batch_that_does_not_divide_is_refused():
    Processes(0, 2).require_shares("the rays of a step", 64)
    with pytest.raises(ts.InputError, match="(?s)the rays of a step cannot be divided.*processes *2.*Ask for 64"):
        Processes(0, 2).require_shares("the rays of a step", 65)


@pytest.mark.parametrize(("command", "page"), [("fit-scene", "--view"), ("learn-image", "--live")])
def test_a_live_page_needs_a_single_process(command, page, monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert read_launched_processes() == Processes(1, 2)
    result = CliRunner().invoke(app, [command, page, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert f"{page} works with one process only" in result.output


def test_a_single_process_starts_no_process_group():
    with join_processes("cpu") as processes:
        assert processes == Processes() and processes.is_first
        processes.wait()
        assert processes.any_process(True) and not processes.any_process(False)
    assert not torch.distributed.is_initialized()
