"""Fixtures and options that every test has: the engines, devices, and which cases run.

- `engine`: the name of each engine in turn, started on the CPU (on CUDA for tests marked `gpu`).
- `lang`: that engine's module, to write kernels with.
- `lang64`: the same with `default_fp=f64`, so that floats in kernels are exact to float64.
- `configure`: changes tinsmith's settings for a test.
- `device`: "cpu" and "cuda" in turn; the second is marked `gpu` and skips where there is none.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

# Before torch is loaded, here and in the processes that tests start. Its threads would spin between two operations, in
# the way of the other test process: up to six times the CPU time of what has many small operations.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# The IR is checked after every pass.
os.environ.setdefault("TINSMITH_VERIFY", "1")
# Most tests test the compiler, not what an earlier run of it left on disk (`_kept_on_disk`).
os.environ.setdefault("TINSMITH_CACHE", "0")

import pytest
import torch

from support.commit import find_commit, find_turn
from support.engine_keeper import ENGINES, Configuration, EngineKeeper
from support.thinned import (
    COMPILER_FOLDERS,
    COSTLY_STEP,
    DISK_STEP,
    ENGINE_STEP,
    FAST_STEP,
    LONG_FOLDERS,
    PROGRAM_FOLDERS,
    PROGRAM_STEP,
    PYTHON,
    PYTHON_FOLDERS,
    READS_DISK,
    RUNS_ON_PYTHON,
    choose_cases,
    choose_engine,
    place,
)
from tinsmith._config import config as settings
from tinsmith.engines import run_on

# Until all tests are collected, no object dies that the collector of cycles would find.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every case, on one of the engines")
    parser.addoption("--fast", action="store_true", help="a quarter of the cases on engines, no pages or commands")
    parser.addoption("--turn", type=int, help="run the cases, on the engines, whose turn it is at this number")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turn = config.getoption("--turn")
    if turn is None:
        turn = find_turn(find_commit().removesuffix("-dirty"))
    _deselect(config, items, set(_find_left_out(config, items, turn)))
    if config.getoption("--fast"):
        _deselect(config, items, {item for item in items if not _is_fast(item, turn)})
    for item in items:
        item.stash[READS_DISK] = _reads_disk(item, turn)
    _skip_gpu_without_one(items)
    items.sort(key=wanted_configuration)  # stable: within a configuration the order stays


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt from garbage collection what lives as long as the session: a million objects and more.

    A tenth of the suite's CPU time went into looking through them, again and again, and as much into looking through
    the trees of syntax of each kernel while it is compiled. What tests leave behind is still collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 100)
    gc.enable()


def _find_left_out(config: pytest.Config, items: list[pytest.Item], turn: int) -> Iterator[pytest.Item]:
    """Return what does not run, and note which cases run on the Python engine.

    A function that the command line names is kept whole, on the engines that it is written for.
    """
    named = {argument.split("::")[-1].partition("[")[0] for argument in config.args if "::" in argument}
    functions: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        if getattr(item, "originalname", None) not in named:
            functions.setdefault(item.nodeid.partition("[")[0], {}).setdefault(_case(item), []).append(item)
    for function, cases in functions.items():
        for step, part in _group_by_step(cases).items():
            step = 1 if config.getoption("--all") else step
            chosen = set(choose_cases(f"{function} {step}", list(part), step, turn))
            for case, group in part.items():
                yield from _find_others(case, group, turn // step, len(cases)) if case in chosen else group


def _group_by_step(cases: dict[str, list[pytest.Item]]) -> dict[int, dict[str, list[pytest.Item]]]:
    """Group the cases of a function by how many of them there are for one that the ordinary run takes."""
    groups: dict[int, dict[str, list[pytest.Item]]] = {}
    for case, group in cases.items():
        groups.setdefault(_find_step(group[0]), {})[case] = group
    return groups


def _find_step(item: pytest.Item) -> int:
    mark = item.get_closest_marker("thinned")
    if item.get_closest_marker("costly"):
        return COSTLY_STEP
    if mark:
        return mark.args[0]
    if _engine(item):
        return ENGINE_STEP
    return PROGRAM_STEP if _folder(item) in PROGRAM_FOLDERS else 1


def _find_others(case: str, group: list[pytest.Item], round_: int, cases: int) -> list[pytest.Item]:
    """Return the engines that a case, which may run on each of a group, does not run on."""
    first = group[0]
    # On a GPU, where tests run seldom, both engines do what is no table.
    needs_both = first.get_closest_marker("each_engine") or (first.get_closest_marker("gpu") and cases == 1)
    if not _engine(first) or needs_both:
        return []
    chosen, is_on_python = choose_engine(case, len(group), round_, has_python=_can_run_on_python(first))
    group[chosen].stash[RUNS_ON_PYTHON] = is_on_python
    return [item for item in group if item is not group[chosen]]


def _can_run_on_python(item: pytest.Item) -> bool:
    needs_engine = any(map(item.get_closest_marker, ("compiled_engine", "gpu", "costly")))
    return _folder(item) in PYTHON_FOLDERS and not needs_engine and not _starts_processes(item)


def _reads_disk(item: pytest.Item, turn: int) -> bool:
    """Return True if a test uses the cache on disk, as programs do. All tests of a file do, or none: they have kernels
    that differ in little.
    """
    file = item.nodeid.partition("::")[0]
    if place(f"disk of {file}", turn, DISK_STEP) or _folder(item) in COMPILER_FOLDERS:
        return False
    return not _may_replace_functions(item.path)


@functools.cache
def _may_replace_functions(path: Path) -> bool:
    """Return True if the tests of a file may replace a part of the compiler. They must not find what others kept on
    disk, nor keep what others find.
    """
    return "monkeypatch" in path.read_text(encoding="utf-8")


def _engine(item: pytest.Item) -> str | None:
    specification = getattr(item, "callspec", None)
    return specification.params.get("engine") if specification else None


def _case(item: pytest.Item) -> str:
    """Return the test's name without its engine."""
    function, bracket, parameters = item.nodeid.partition("[")
    return function + bracket + parameters.replace(str(_engine(item)), "", 1)


def _folder(item: pytest.Item) -> str:
    return item.nodeid.split("/")[1] if item.nodeid.count("/") > 1 else ""


def _is_fast(item: pytest.Item, turn: int) -> bool:
    """Return False for what takes long, and for most of the cases on an engine."""
    if _folder(item) in LONG_FOLDERS or _starts_processes(item):
        return False
    return _engine(item) is None or place(_case(item), turn, FAST_STEP) == 0


def _starts_processes(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "module", None), "subprocess") or "pytester" in getattr(item, "fixturenames", ())


def _deselect(config: pytest.Config, items: list[pytest.Item], left_out: set[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def _skip_gpu_without_one(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


def wanted_configuration(item: pytest.Item) -> Configuration:
    """Return how the engines must run for this test."""
    return Configuration(
        arch="cuda" if item.get_closest_marker("gpu") else "cpu",
        default_fp="f64" if "lang64" in getattr(item, "fixturenames", ()) else "f32",
    )


@pytest.fixture(autouse=True)
def _kept_on_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a chosen test use the cache on disk, in a folder that all tests share. The IR is not checked then."""
    if not request.node.stash.get(READS_DISK, False):
        yield
        return
    request.node.add_report_section(
        "setup", "disk", "This test used the cache on disk: TINSMITH_CACHE=1 TINSMITH_VERIFY=0."
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINSMITH_CACHE", "1")
        patch.setenv("TINSMITH_VERIFY", "0")
        patch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("kept")))
        settings.cache_clear()
        yield
    settings.cache_clear()


@pytest.fixture(scope="session")
def engine_keeper(request: pytest.FixtureRequest) -> Iterator[EngineKeeper]:
    """Start engines on demand. A test that needs an engine in an unusual state calls the engine itself instead."""
    keeper = EngineKeeper(request.config.cache.mkdir("engines"))
    yield keeper
    keeper.stop()


@pytest.fixture(params=ENGINES)
def engine(
    request: pytest.FixtureRequest, engine_keeper: EngineKeeper, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Start each engine in turn as this test needs it, and return its name.

    Where the run chose Python for this case, Python runs the kernels that are written for the engine.
    """
    engine_keeper.ensure(request.param, wanted_configuration(request.node))
    if not request.node.stash.get(RUNS_ON_PYTHON, False):
        yield request.param
        return
    repeat = f"Python ran these kernels: TINSMITH_ENGINE=python ./scripts/test '{request.node.nodeid}' does so again."
    request.node.add_report_section("setup", "engine", repeat)
    monkeypatch.setenv("TINSMITH_ENGINE", PYTHON)
    settings.cache_clear()
    yield request.param
    monkeypatch.undo()
    settings.cache_clear()
    # A test that starts the engine by `ts.init` has chosen Python for the process.
    run_on(None)


@pytest.fixture
def lang(engine: str, engine_keeper: EngineKeeper, request: pytest.FixtureRequest) -> ModuleType:
    """Return the module of `engine`, to write kernels with: `lang.kernel`, `lang.types.ndarray()`."""
    return engine_keeper.ensure(engine, wanted_configuration(request.node))


@pytest.fixture
def lang64(lang: ModuleType) -> ModuleType:
    """Return `lang` with default_fp=f64, which asking for this fixture causes."""
    return lang


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Return the device of the test's tensors."""
    return request.param


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Change settings for a test: `configure(poison="1", serial_below="0")`."""

    def change(**texts: str) -> None:
        for name, text in texts.items():
            monkeypatch.setenv(f"TINSMITH_{name.upper()}", text)
        settings.cache_clear()

    yield change
    monkeypatch.undo()
    settings.cache_clear()


@pytest.fixture
def disk_cache(configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Turn the cache on disk on, in a folder of the test; return the folder, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    configure(cache="1", verify="0")
    return tmp_path / "tinsmith" / "programs"


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Seed torch for every test, and restore its random state afterwards."""
    state = torch.get_rng_state()
    # Where there is no GPU, `torch.manual_seed` notes the stack of each call for devices that never come.
    seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
    seed(0)
    yield
    torch.set_rng_state(state)


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    """Reset torch's compiler after each test: it compiles `__call__` for eight ops of a process at most."""
    yield
    if "torch._dynamo" in sys.modules:
        # Not `torch.compiler.reset`, which loads torch's default backend where a test says that there is a GPU.
        torch._dynamo.reset_code_caches()
