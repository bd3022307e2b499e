"""benchmarks/rounds.py runs, says how often the field is asked, and stops where a way sees something else."""

import pytest

from support.benchmarks import run_benchmark

WITH_A_WRONG_WAY = """\
import runpy, sys
from tinsmith import render
right = render.render_in_rounds
render.render_in_rounds = lambda *given, **options: right(*given, **options, max_steps=3)
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.costly
def test_a_quick_run_writes_a_page(tmp_path):
    done = run_benchmark("rounds.py", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "rounds-cpu.md").read_text(encoding="utf-8").splitlines()
    for engine in ("taichi", "quadrants"):
        assert any(f"| an opaque ball, 8 x 8, on {engine} | in rounds | at once |" in line for line in lines)
        _, in_rounds, one_sample = shares(lines, f"an opaque ball, 8 x 8, on {engine}")
        assert one_sample < in_rounds < 50
        assert shares(lines, f"a ball of cloud, 8 x 8, on {engine}") == [100, 100, 100]


def shares(lines, picture):
    """Return the percentage of samples evaluated at once, in rounds, and with one sample at a time."""
    return [int(line.split("|")[-2].strip(" %")) for line in lines if line.startswith(f"| {picture}") and "% |" in line]


@pytest.mark.costly
def test_a_way_that_sees_something_else_ends_the_run(tmp_path):
    done = run_benchmark("-c", WITH_A_WRONG_WAY, "rounds.py", "--quick", "--out", tmp_path)
    assert done.returncode == 1
    assert "in rounds sees something else" in done.stderr
    assert not list(tmp_path.iterdir())
