"""The ordinary run leaves out cases of what has very many, and others at the next commit."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.commit import find_commit, find_turn
from support.engine_keeper import ENGINES
from support.thinned import (
    COSTLY_STEP,
    PYTHON_FOLDERS,
    READS_DISK,
    RUNS_ON_PYTHON,
    choose_cases,
    choose_engine,
)

CONFTEST = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")

WEEK = 40
"""Commits of a week."""


@pytest.mark.parametrize("count", [1, 2, 3, 4, 98])
def test_each_case_has_its_turn(count: int) -> None:
    for name in map(str, range(50)):
        chosen = [choose_cases(name, range(count), 4, turn) for turn in range(7, 11)]
        assert sorted(case for cases in chosen for case in cases) == list(range(count))
        assert all(count // 4 <= len(cases) <= -(-count // 4) for cases in chosen)


def test_functions_differ_in_the_case_that_they_begin_with() -> None:
    assert {case for name in map(str, range(50)) for case in choose_cases(name, "abcd", 4, turn=0)} == set("abcd")


@pytest.mark.parametrize("step", [1, 3, COSTLY_STEP, 13])
def test_a_week_runs_each_case_on_each_engine(step: int) -> None:
    cases = [str(number) for number in range(30)]
    on = {
        (case, *choose_engine(case, len(ENGINES), turn // step, has_python=True))
        for turn in range(1000, 1000 + WEEK)
        for case in choose_cases("function", cases, step, turn)
    }
    assert {(case, engine, False) for case in cases for engine in range(len(ENGINES))} <= on
    assert {case for case, _, is_on_python in on if is_on_python} == set(cases)


def test_a_week_of_commits_runs_every_case(request: pytest.FixtureRequest) -> None:
    steps = {item.nodeid: item.get_closest_marker("thinned") for item in request.session.items}
    engines = {name: len(ENGINES) + any(f"tests/{folder}/" in name for folder in PYTHON_FOLDERS) for name in steps}
    assert [name for name, mark in steps.items() if mark and mark.args[0] * engines[name] > WEEK] == []


def test_turns_are_the_length_of_the_history(request: pytest.FixtureRequest) -> None:
    commit = find_commit().removesuffix("-dirty")
    if not commit or find_turn(commit) > 10**6:
        pytest.skip("this checkout has no history")
    assert find_turn(commit) == find_turn(f"{commit}~1") + 1


def test_a_commit_without_history_has_a_turn_too() -> None:
    assert find_turn("no such commit") != find_turn("") >= 0


MANY = """
    import pytest

    @pytest.mark.parametrize("case", range(60))
    def test_on_engines(engine, case): pass

    @pytest.mark.parametrize("case", range(80))
    def test_on_none(case): pass

    @pytest.mark.costly
    @pytest.mark.parametrize("case", range(16))
    def test_costly(case): pass

    def test_once(engine): pass

    @pytest.mark.each_engine
    def test_each(engine): pass

    @pytest.mark.gpu
    def test_gpu(engine): pass

    @pytest.mark.thinned(5)
    @pytest.mark.parametrize("case", range(20))
    def test_thinned(case): pass
"""


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([], {"on_engines": 15, "on_none": 80, "thinned": 4, "costly": 2}),
        (["--all"], {"on_engines": 60, "on_none": 80, "once": 1, "each": 2, "gpu": 2, "thinned": 20, "costly": 16}),
        (["{file}::test_once"], {"once": 2}),
        (["{file}::test_costly"], {"costly": 16}),
        (["{file}::test_on_engines[taichi-2]"], {"on_engines": 1}),
    ],
)
def test_the_cases_that_a_run_takes(pytester: pytest.Pytester, options: list[str], chosen: dict[str, int]) -> None:
    file = pytester.makepyfile(MANY)
    names = collect(pytester, *(one.format(file=file.name) for one in options))
    counts = {name: sum(f"test_{name}[" in one or one.endswith(f"test_{name}") for one in names) for name in chosen}
    assert counts == chosen
    single = {"test_once", "test_each", "test_gpu"} if not options else set()
    assert {name.split("::")[1].partition("[")[0] for name in names} <= {f"test_{name}" for name in chosen} | single


def test_the_fast_run_takes_what_needs_no_engine_and_few_of_the_rest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MANY)
    collected = collect(pytester, "--fast")
    assert sum("test_on_none" in line for line in collected) == 80
    assert 1 <= sum("test_on_engines" in line for line in collected) <= 10


def test_the_fast_run_starts_no_processes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one="import subprocess\ndef test_it(): pass", test_other="def test_that(): pass")
    assert collect(pytester, "--fast") == ["test_other.py::test_that"]


def test_two_turns_run_different_cases(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MANY)
    one, again, other = (set(collect(pytester, "--turn", turn)) for turn in ("7", "7", "8"))
    assert one == again and one != other
    assert find_cases(one) != find_cases(other)


def test_two_turns_run_all_cases_on_different_engines(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MANY)
    one, other = (set(collect(pytester, "--all", "--turn", turn)) for turn in ("7", "8"))
    assert one != other
    assert find_cases(one) == find_cases(other)


def find_cases(names: set[str]) -> set[str]:
    """Return the names of tests without their engines."""
    return {re.sub("|".join(ENGINES), "", name) for name in names}


ON_PYTHON = """
    import pytest

    @pytest.mark.parametrize("case", range(30))
    def test_any(engine, case): pass

    @pytest.mark.compiled_engine
    @pytest.mark.parametrize("case", range(30))
    def test_compiled(engine, case): pass
"""


@pytest.mark.parametrize(("folder", "chosen"), [("bridge", range(5, 16)), ("render", (0,))])
def test_python_runs_a_third_of_what_it_can_run(pytester: pytest.Pytester, folder: str, chosen: Sequence[int]) -> None:
    path = pytester.mkdir("tests") / folder
    path.mkdir()
    pytester.makepyfile(ON_PYTHON).rename(path / "test_it.py")
    pytester.makeconftest(CONFTEST)
    finished: Any = pytester.inline_run("--all", "--collect-only").getcall("pytest_collection_finish")
    items = finished.session.items
    on_python = [item for item in items if item.stash.get(RUNS_ON_PYTHON, False)]
    assert len(items) == 60 and len(on_python) in chosen
    assert not [item for item in on_python if "test_compiled" in item.name]


def collect(pytester: pytest.Pytester, *options: str) -> list[str]:
    """Return the tests that a run with these options would take."""
    pytester.makeconftest(CONFTEST)
    result = pytester.runpytest_inprocess("--collect-only", "-q", *options)
    return [line for line in result.outlines if "::" in line]


def test_a_third_of_the_files_use_the_cache_on_disk(pytester: pytest.Pytester) -> None:
    path = pytester.mkdir("tests") / "bridge"
    path.mkdir()
    for number in range(30):
        body = "def test_any(engine, monkeypatch): pass" if number < 10 else "def test_any(engine): pass"
        (path / f"test_{number}.py").write_text(body)
    pytester.makeconftest(CONFTEST)
    chosen = []
    for turn in ("1", "2", "3"):
        finished: Any = pytester.inline_run("--all", "--collect-only", "--turn", turn).getcall(
            "pytest_collection_finish"
        )
        chosen.append({item.path.name for item in finished.session.items if item.stash[READS_DISK]})
    assert {name for names in chosen for name in names} == {f"test_{number}.py" for number in range(10, 30)}
    assert sum(map(len, chosen)) == 20
