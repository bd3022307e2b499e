"""The ordinary run leaves out cases of what has very many, but no function whole."""

from pathlib import Path

import pytest

from support.engine_keeper import ENGINES
from support.thinned import choose_cases, choose_engine


@pytest.mark.parametrize("count", [1, 2, 3, 4, 100])
def test_every_function_keeps_a_case_and_no_more_than_its_part(count: int) -> None:
    for name in map(str, range(50)):
        chosen = choose_cases(name, count, 4)
        assert chosen == choose_cases(name, count, 4) and max(chosen) < count
        assert count // 4 <= len(chosen) <= -(-count // 4)


def test_a_function_keeps_cases_of_each_engine_whichever_parameter_changes_fastest() -> None:
    for name in map(str, range(20)):
        assert {case % 2 for case in choose_cases(name, 40, 4)} == {0, 1}
        assert {case < 20 for case in choose_cases(name, 40, 4)} == {True, False}


def test_functions_with_one_case_an_engine_differ_in_the_engine_they_keep() -> None:
    assert {choose_cases(name, 2, 4)[0] for name in map(str, range(50))} == {0, 1}
    assert {choose_engine(name) for name in map(str, range(50))} == set(ENGINES)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", range(30))
def test_the_mark_thins_out(case: int, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--slow") or "slow" in (request.config.getoption("markexpr") or "")
    name = request.node.nodeid.partition("[")[0]
    assert everything or case in choose_cases(name, 30, 3)


@pytest.mark.parametrize("case", range(4))
def test_a_table_takes_turns_between_engines(case: int, engine: str, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--slow") or "slow" in (request.config.getoption("markexpr") or "")
    fast = request.config.getoption("--fast")
    assert everything or fast or engine == choose_engine(request.node.nodeid.partition("[")[0], case)


@pytest.mark.each_engine
def test_where_engines_differ_both_run(engine: str, request: pytest.FixtureRequest) -> None:
    name = request.node.nodeid
    both = {name.replace(engine, one) for one in ENGINES}
    collected = {item.nodeid for item in request.session.items}
    assert request.config.getoption("--fast") or both <= collected or len(collected) == 1


ON_ENGINES = """
    import pytest

    def test_any(engine): pass

    @pytest.mark.each_engine
    def test_each(engine): pass

    @pytest.mark.gpu
    def test_gpu(engine): pass

    @pytest.mark.parametrize("case", range(4))
    def test_table(engine, case): pass
"""
MANY = """
    import pytest

    @pytest.mark.parametrize("case", range(80))
    def test_on_engines(engine, case): pass

    @pytest.mark.parametrize("case", range(80))
    def test_on_none(case): pass
"""


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([], 1 + 2 + 2 + 2),
        (["--slow"], 2 + 2 + 2 + 8),
        (["{file}::test_any"], 2),
        (["{file}::test_table[taichi-2]"], 1),
    ],
)
def test_what_is_named_runs_whole(pytester: pytest.Pytester, options: list[str], chosen: int) -> None:
    file = pytester.makepyfile(ON_ENGINES)
    assert len(collect(pytester, *(one.format(file=file.name) for one in options))) == chosen


def test_the_fast_run_takes_what_needs_no_engine_and_few_of_the_rest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MANY)
    collected = collect(pytester, "--fast")
    assert sum("test_on_none" in line for line in collected) == 80
    assert 3 <= sum("test_on_engines" in line for line in collected) <= 16


def test_the_fast_run_starts_no_processes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one="import subprocess\ndef test_it(): pass", test_other="def test_that(): pass")
    assert collect(pytester, "--fast") == ["test_other.py::test_that"]


def collect(pytester: pytest.Pytester, *options: str) -> list[str]:
    """The tests that a run with these options would take."""
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text(encoding="utf-8"))
    result = pytester.runpytest_inprocess("--collect-only", "-q", *options)
    return [line for line in result.outlines if "::" in line]
