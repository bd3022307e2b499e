"""The pytest plugin: nothing without its flags; with them an item a file of kernels, and one an example."""

import importlib.metadata
import sys

import pytest

KERNELS = """
import {engine} as lang
import torch
import tinsmith as ts


@ts.op("x[n] -> y[n]")
@lang.kernel
def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = x[i] * x[i]


@square.example
def small():
    return torch.linspace(0.1, 1.0, 4, dtype=torch.float64)


@square.example
def odd():
    raise KeyError("no such file")


@ts.op("x[n] -> y[n]")
@lang.kernel
def counted(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        count = 0
        count += 0.5 * x[i]
        y[i] = count


class Anything:
    def __getattr__(self, name):
        raise RuntimeError("nobody asks me")


anything = Anything()


@lang.data_oriented
class Scaler:
    def __init__(self, factor):
        self.factor = factor

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scale(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = self.factor * x[i]

    @scale.example
    def small():
        return torch.linspace(0.1, 1.0, 4, dtype=torch.float64)


scaler = Scaler(3.0)


def test_as_ever():
    assert square.examples
"""

WARNED = """
import {engine} as lang

@lang.kernel
def warned(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        t = x[i]
        while t > 1.0:
            t = 0.5 * t
        y[i] = t
"""


ENGINES = ["taichi", "quadrants"]  # by name: `pytester` forgets modules that were imported meanwhile, engines do not


def _is_installed():
    return bool(importlib.metadata.entry_points(group="pytest11", name="tinsmith"))


@pytest.fixture
def run(pytester):
    """Return a function that runs pytest in another process, with the plugin even if tinsmith is only on the path."""

    def ran(*arguments):
        plugin = () if _is_installed() else ("-p", "pytest_tinsmith")
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *plugin, *arguments)

    return ran


def test_without_its_flags_it_loads_nothing(pytester, run):
    pytester.makepyfile(
        test_light="""
        import sys

        def test_nothing_is_loaded(pytestconfig):
            assert "pytest_tinsmith" in sys.modules
            assert not {"torch", "numpy", "taichi", "quadrants", "tinsmith"} & set(sys.modules)
            assert not pytestconfig.pluginmanager.hasplugin("tinsmith-checks")
        """
    )
    run().assert_outcomes(passed=1)


@pytest.mark.costly
def test_the_check_above_can_fail(pytester, run):
    pytester.makepyfile(
        test_heavy="""
        import sys

        def test_something_is_loaded(pytestconfig):
            assert "torch" in sys.modules and "taichi" not in sys.modules
            assert pytestconfig.pluginmanager.hasplugin("tinsmith-checks")
        """
    )
    run("--tinsmith-check").assert_outcomes(passed=1)


@pytest.mark.parametrize("engine", ENGINES)
def test_files_and_examples_are_items(pytester, run, engine):
    pytester.makepyfile(
        test_kernels=KERNELS.format(engine=engine),
        test_others="from test_kernels import square, test_as_ever\nagain = square\n",
        fine=WARNED.format(engine=engine),
        broken="@lang.kernel\ndef f(:\n",
        other="x = 1\n",
    )
    result = run("--tinsmith-check", "-v", "--import-mode=prepend")
    result.stdout.fnmatch_lines_random(
        [
            "broken.py::tinsmith-lint FAILED*",
            "fine.py::tinsmith-lint PASSED*",
            "test_kernels.py::tinsmith-lint FAILED*",
            "test_kernels.py::square?tinsmith-small? PASSED*",
            "test_kernels.py::square?tinsmith-odd? FAILED*",
            "test_kernels.py::scaler.scale?tinsmith-small? PASSED*",
            "test_kernels.py::test_as_ever PASSED*",
            "test_others.py::test_as_ever PASSED*",
            "check of broken.py *",
            "    2:7  error TS001 not-python",
            "*example `odd` of op `square` could not be run: KeyError: 'no such file'",
            "   28:9  error TS301 silent-truncation",
        ]
    )
    result.assert_outcomes(passed=5, failed=3)
    assert "Traceback" not in result.stdout.str() and "runtest" not in result.stdout.str()


@pytest.mark.costly
def test_hints_of_what_passes_are_shown_where_asked(pytester, run):
    pytester.makepyfile(fine=WARNED.format(engine="taichi"))
    run("--tinsmith-check", "-rP").stdout.fnmatch_lines(["*warning TS202*"])
    run("--tinsmith-check").stdout.no_fnmatch_line("*TS202*")


@pytest.mark.costly
@pytest.mark.parametrize("engine", ENGINES)
def test_strict_fails_on_warnings(pytester, run, engine):
    pytester.makepyfile(fine=WARNED.format(engine=engine))
    result = run("--tinsmith-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*warning TS202*"])


def test_the_entry_point_is_declared():
    tomllib = pytest.importorskip("tomllib") if sys.version_info >= (3, 11) else pytest.importorskip("tomli")
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"tinsmith": "pytest_tinsmith"}
    assert "src/pytest_tinsmith.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
