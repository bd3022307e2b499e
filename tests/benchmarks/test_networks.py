"""benchmarks/networks.py runs, says whether each number is held, and stops where a way computes something else."""

import pytest

from support.benchmarks import run_benchmark

WITH_A_WRONG_WAY = """\
import runpy, sys
import _network_ways as ways
right = ways.error
ways.error = lambda y, target: 1.1 * right(y, target)  # torch's ways and forward's; not the kernels that learn
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.costly
def test_a_quick_run_writes_a_page(tmp_path):
    done = run_benchmark("networks.py", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "networks-cpu.md").read_text(encoding="utf-8")
    assert "| width | hidden | networks | tinsmith on taichi | tinsmith on quadrants |" in page
    assert "| step, worst of width 4: 64 x width 4, 1 hidden |" in page
    assert "2,000 points scattered evenly" in page
    assert "| 16 | 2 | 64 |" in page.partition("## Peak memory")[2]


@pytest.mark.costly
def test_a_way_that_computes_something_else_ends_the_run(tmp_path):
    done = run_benchmark("-c", WITH_A_WRONG_WAY, "networks.py", "--quick", "--out", tmp_path)
    assert done.returncode == 1
    assert "computes something else" in done.stderr
    assert not list(tmp_path.iterdir())
