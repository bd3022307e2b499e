"""benchmarks/gaussians.py runs, says whether each number is held, and stops where a way computes something else."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WITH_A_WRONG_WAY = """\
import runpy, sys
import _gaussian_ways as ways
right = ways.by_tiles
ways.by_tiles = lambda *given, side: 1.1 * right(*given, side=side)
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*command):
    return subprocess.run(
        [sys.executable, *command], cwd=BENCHMARKS, capture_output=True, text=True, timeout=400, check=False
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_a_quick_run_writes_a_page(tmp_path):
    done = run("gaussians.py", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "gaussians-cpu.md").read_text(encoding="utf-8")
    assert "| 100 Gaussians, 32 x 32, forward and backward | tinsmith on quadrants | plain torch, by tiles |" in page
    assert "| 300 Gaussians, 64 x 64 | inputs, MB | inputs and step, MB |" in page


@pytest.mark.slow
def test_a_way_that_computes_something_else_ends_the_run(tmp_path):
    done = run("-c", WITH_A_WRONG_WAY, "gaussians.py", "--quick", "--out", tmp_path)
    assert done.returncode == 1
    assert "computes something else" in done.stderr
    assert not list(tmp_path.iterdir())
