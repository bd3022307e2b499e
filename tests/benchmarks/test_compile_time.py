"""benchmarks/compile_time.py and preparation.py run, and what they measure is linear in the size of a kernel."""

import sys

import pytest

from support.benchmarks import BENCHMARKS, run_benchmark

SHAPES = (
    "arrays",
    "branches",
    "carried",
    "chain",
    "copies",
    "deep branches",
    "expressions",
    "functions",
    "locals",
    "loops",
    "matrices",
    "nested loops",
    "stores",
    "tasks",
    "while loops",
)


def count_calls(function):
    """Run a function; return what it returns, and how many Python functions were called."""
    calls = 0

    def note(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        result = function()
    finally:
        sys.setprofile(None)
    return result, calls


@pytest.mark.costly
def test_a_quick_comparison_with_another_checkout_writes_a_page(tmp_path):
    done = run_benchmark("compile_time.py", "--quick", "--against", BENCHMARKS.parent, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "compile-time-cpu.md").read_text(encoding="utf-8")
    assert "| stencil, nodes, quadrants | 3: " in page
    assert "| all ops, taichi, first call | " in page
    assert "| generated, statements 280, taichi | " in page
    (row,) = (line for line in page.splitlines() if line.startswith("| generated, statements 280, taichi | "))
    first, second, own, front_end, compiler, whole = (
        float(cell.replace(",", "")) for cell in row.strip("| ").split(" | ")[-6:]
    )
    assert 0 < second < 0.8 * first
    assert all(part > 0 for part in (own, front_end, compiler))
    assert abs(own + front_end + compiler - whole) < 0.5
    assert "| all ops, taichi, first call with the engine | " in page


@pytest.mark.costly
def test_a_quick_run_over_sizes_writes_a_page_and_a_chart(tmp_path):
    done = run_benchmark("preparation.py", "--quick", "--only", "chain", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "preparation-cpu.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| chain | "))
    small, large, growth = (float(cell) for cell in row.strip("| ").split(" | ")[1:])
    assert 0 < small < large
    assert 0.3 < growth < 1.5
    assert (tmp_path / "preparation-cpu.png").stat().st_size > 5000


def test_calls_are_linear_in_the_lines_that_are_written(lang, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from _compile_kernels import GROWING
    from _compile_worker import time_parts

    builds = [build for _, build in sorted(GROWING["stencil, nodes"].items())]
    time_parts(builds[0], lang)  # imports what is imported late
    (small, few), (large, many) = (
        count_calls(lambda build=build: time_parts(build, lang)) for build in (builds[0], builds[-1])
    )
    factor = large["lines"] / small["lines"]
    assert factor > 5
    assert many / few < 1.1 * factor


@pytest.mark.parametrize("shape", SHAPES)
def test_calls_are_linear_in_the_statements_of_any_shape(lang, monkeypatch, shape):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from _compile_shapes import SHAPES as BUILDS
    from _compile_worker import time_parts

    assert sorted(BUILDS) == sorted(SHAPES)
    time_parts(lambda lang: BUILDS[shape](lang, 40), lang)  # imports what is imported late
    few, many = (
        count_calls(lambda size=size: time_parts(lambda lang: BUILDS[shape](lang, size), lang))[1]
        for size in (100, 500)
    )
    # What an op takes, however small it is, makes it less.
    assert many / few < 5.15
