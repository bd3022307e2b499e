"""benchmarks/sizes.py runs, with and without Numba, and writes a page and a chart. No time is tested."""

import pytest

from support.benchmarks import run_benchmark

WITHOUT_NUMBA = """\
import runpy, sys
sys.modules["numba"] = None  # as if it were not installed
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.costly
def test_a_quick_run_writes_a_page_and_a_chart(tmp_path):
    done = run_benchmark("-c", WITHOUT_NUMBA, "sizes.py", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "sizes-cpu.md").read_text(encoding="utf-8")
    assert (tmp_path / "sizes-cpu.png").read_bytes().startswith(b"\x89PNG")
    assert "| elements | tinsmith, taichi | tinsmith, quadrants | torch | ratio | of medians | |" in page
    assert [line.split(" |")[0] for line in page.splitlines() if line.endswith(("held |", "MISSED |"))] == [
        "| 1",
        "| 64",
        "| 1,000",
    ]
    parts = page.partition("## What a call consists of")[2]
    assert parts.count(" us |") >= 12 and "| 1,000 | quadrants |" in parts
