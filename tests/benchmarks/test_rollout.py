"""benchmarks/rollout.py runs: the tape, a rollout and a scan agree, and its page says whether numbers are held."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("program", ["springs", "mpm", "wave"])
def test_a_quick_run_writes_a_page(tmp_path, program):
    command = [sys.executable, BENCHMARKS / "rollout.py", "--quick", "--rounds", "1", "--only", program]
    done = subprocess.run(
        [*command, "--out", tmp_path], cwd=BENCHMARKS, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "rollout-cpu.md").read_text(encoding="utf-8")
    for engine in ("taichi", "quadrants"):
        for way in ("rollout", "scan"):
            assert f"| {way} on {engine} | tape |" in page
