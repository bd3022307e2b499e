"""benchmarks/overhead.py runs, says whether each number is held, and names what is missing. No time is tested."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from support.benchmarks import BENCHMARKS, run_benchmark

WITHOUT_PEERS = """\
import runpy, sys
sys.modules["warp"] = sys.modules["stannum"] = None  # as if they were not installed
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def load(monkeypatch):
    """Return a function that imports a module of the benchmarks by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def module(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return module


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_benchmark("-c", WITHOUT_PEERS, "overhead.py", *arguments)


@pytest.mark.costly
def test_a_quick_run_without_peers_writes_a_page_and_a_plot_and_names_who_is_missing(tmp_path):
    done = run("--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "overhead-cpu.md").read_text(encoding="utf-8")
    assert (tmp_path / "overhead-cpu.png").read_bytes().startswith(b"\x89PNG")
    assert "| ts.op on taichi | 3 | 3 | 1 | 1 |" in page and "| ts.op on quadrants | 3 | 3 | 1 | 1 |" in page
    assert "| by hand on taichi | **6** |" in page
    parts = [line for line in page.splitlines() if line.startswith("| part of 64 elements, ")]
    assert len(parts) == 10 and all(" us (" in line for line in parts), parts
    for peer in ("Warp", "Stannum"):
        line = next(line for line in page.splitlines() if line.startswith(f"| beside {peer} "))
        assert 'pip install ".[peers]"' in line and line.endswith("| not measured |")
    assert "torch 2" in page and "taichi 1" in page


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_cuda_is_reported():
    done = run("--device", "cuda")
    assert done.returncode == 2
    assert done.stderr.startswith("overhead: torch sees no CUDA device, so nothing was measured")


@pytest.mark.parametrize(
    ("middle", "sense", "aim", "verdict"),
    [
        (3.9, ">=", 6, "MISSED"),
        (4.0, ">=", 6, "held"),
        (6.5, ">=", 6, "held, and the aim"),
        (4.1, "<=", None, "MISSED"),
        (4.0, "<=", 2, "held"),
        (1.9, "<=", 2, "held, and the aim"),
    ],
)
def test_a_verdict_is_honest(load, middle, sense, aim, verdict):
    figure = load("_harness").Figure(middle, 0.0, 9.0)
    assert load("_report").Row("what", "ours", "theirs", figure, sense, 4, aim).verdict == verdict


def test_rounds_are_interleaved_and_slow_ways_take_part_in_fewer(load):
    harness, order = load("_harness"), []
    clock = iter(range(10**6))

    def taking(name: str, seconds: int):
        def call() -> None:
            order.append(name)
            for _ in range(seconds):
                next(clock)

        return call

    effort = harness.Effort(4, moment=0, patience=450, clock=lambda: next(clock))
    timings = harness.timed({"a": taking("a", 1), "b": taking("b", 100)}, effort)
    assert order[4:] == ["a", "b", "a", "a", "b", "a"]
    assert set(timings["a"].rounds) == {0, 1, 2, 3} and set(timings["b"].rounds) == {0, 2}
    assert harness.ratio(timings["b"], timings["a"]).middle == 101 / 2


def test_a_slope_is_that_of_a_straight_line(load):
    harness = load("_harness")
    timings = {count: harness.Timing({0: 5.0 + 2 * count, 1: 1.0 + 2 * count}) for count in (1, 4, 12)}
    assert harness.slope(timings).middle == pytest.approx(2.0)
