"""benchmarks/layers.py runs, says whether each number is held, and names Stannum where it is missing."""

import pytest
import torch

from support.benchmarks import run_benchmark

WITHOUT_STANNUM = """\
import runpy, sys
sys.modules["stannum"] = None  # as if it was not installed
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*arguments):
    return run_benchmark("-c", WITHOUT_STANNUM, "layers.py", *arguments)


@pytest.mark.costly
def test_a_quick_run_without_stannum_writes_a_page_and_names_who_is_missing(tmp_path):
    done = run("--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "layers-cpu.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("| beside Stannum "))
    assert 'pip install ".[peers]"' in line and line.endswith("| not measured |")
    for engine in ("taichi", "quadrants"):
        for kind in ("Tube", "EmptyTin"):
            assert f"| ts.{kind} on {engine} | 6 | 6 | 6 |" in page
        assert f"| Tin, growth over 10,000 steps | ts.Tin on {engine} |" in page


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_cuda_is_reported():
    done = run("--device", "cuda")
    assert done.returncode == 2
    assert done.stderr.startswith("layers: torch sees no CUDA device, so nothing was measured")
