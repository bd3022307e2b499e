"""benchmarks/rollout.py runs: the tape, a rollout and a scan agree, and its page says whether numbers are held."""

import pytest

from support.benchmarks import run_benchmark


@pytest.mark.costly
@pytest.mark.parametrize("program", ["springs", "mpm", "wave"])
def test_a_quick_run_writes_a_page(tmp_path, program):
    done = run_benchmark("rollout.py", "--quick", "--rounds", "1", "--only", program, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "rollout-cpu.md").read_text(encoding="utf-8")
    for engine in ("taichi", "quadrants"):
        for way in ("rollout", "scan"):
            assert f"| {way} on {engine} | tape |" in page
