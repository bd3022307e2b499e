"""benchmarks/rendering.py runs, says whether each number is held, and stops where a way computes something else."""

import pytest

from support.benchmarks import run_benchmark

WITH_A_WRONG_WAY = """\
import runpy, sys
import _rendering_ways as ways
right = ways.torch_dense
ways.torch_dense = lambda *samples: [1.1 * y for y in right(*samples)]
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.costly
def test_a_quick_run_writes_a_page(tmp_path):
    done = run_benchmark("rendering.py", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "rendering-cpu.md").read_text(encoding="utf-8")
    assert "| Compositing, 64 rays x 8, forward and backward | tinsmith on" in page
    assert "| plain torch, cumsum and index_add |" in page and "the copied kernel, the engine's gradient" in page
    assert "| Grid, 3-D, 2^10 slots, both gradients |" in page
    assert "| 64 rays, a ball of 3% of 128^3 cells" in page
    assert "| fit-scene, 2 steps of 2,048 rays, 16 x 16 pixels | steps/s |" in page


@pytest.mark.costly
def test_a_way_that_computes_something_else_ends_the_run(tmp_path):
    done = run_benchmark("-c", WITH_A_WRONG_WAY, "rendering.py", "--quick", "--out", tmp_path)
    assert done.returncode == 1
    assert "plain torch, cumprod computes something else" in done.stderr
    assert not list(tmp_path.iterdir())
