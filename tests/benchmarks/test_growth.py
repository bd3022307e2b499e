"""benchmarks/growth.py runs, and fits slopes."""

import math
import sys

import pytest

from support.benchmarks import BENCHMARKS, run_benchmark


@pytest.mark.costly
def test_a_quick_run_writes_a_page_and_charts(tmp_path):
    only = ("--only", "elements", "--only", "calls", "--engine", "quadrants")
    done = run_benchmark("growth.py", "--quick", *only, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "growth-cpu.md").read_text(encoding="utf-8")
    for name in ("elements", "elements, with gradient", "calls kept alive"):
        assert f"| {name}, quadrants | slope " in page
    (row,) = (line for line in page.splitlines() if line.startswith("| calls kept alive | 10 | 30 |"))
    assert row
    assert (tmp_path / "growth-cpu.png").stat().st_size > 5000


def test_a_slope_is_fitted_to_the_last_hundredfold(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", ["growth.py"])
    from _harness import Timing
    from growth import DIMENSIONS, OURS, Curve

    def grow(power, sizes):
        """Return the timings of a call whose time is constant below 1,000."""
        return {size: Timing(dict.fromkeys(range(3), 1e-3 * max(1.0, size / 1000) ** power)) for size in sizes}

    sizes = (10, 100, 1000, 10_000, 100_000)
    curve = Curve(DIMENSIONS[0], "quadrants", {OURS: grow(2.0, sizes), "torch": grow(1.0, (*sizes, 10**6))})
    assert math.isclose(curve.find_slope(OURS).middle, 2.0, abs_tol=1e-6)
    assert math.isclose(curve.find_slope("torch").middle, 1.0, abs_tol=1e-6)
    assert curve.row().verdict == "MISSED"
    assert curve.best_peer == "torch"
