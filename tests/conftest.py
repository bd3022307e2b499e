"""Fixtures and options that every test has: the engines, devices, slow tests.

- `engine`: the name of each engine in turn, started on the CPU (on CUDA for tests marked `gpu`).
- `lang`: that engine's module, to write kernels with.
- `lang64`: the same with `default_fp=f64`, so that floats in kernels are exact to float64.
- `configure`: changes tinsmith's settings for a test.
- `device`: "cpu" and "cuda" in turn; the second is marked `gpu` and skips where there is none.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

# Before torch is loaded, here and in the processes that tests start. Its threads would spin between two operations, in
# the way of the other test process: up to six times the CPU time of what has many small operations.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch

from support.engine_keeper import ENGINES, Configuration, EngineKeeper
from support.thinned import LONG_FOLDERS, TABLE_STEP, choose_cases, choose_engine, is_in_fast_run
from tinsmith._config import config as settings

# Until all tests are collected, no object dies that the collector of cycles would find.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")
    parser.addoption("--fast", action="store_true", help="a quarter of the cases on engines, no pages or commands")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out_slow(config, items)
    _thin_out(config, items)
    _hurry(config, items)
    _skip_gpu_without_one(items)
    items.sort(key=wanted_configuration)  # stable: within a configuration the order stays


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare the collector what lives as long as the session: modules and tests, a million objects and more.

    A tenth of the suite's CPU time went into looking through them, again and again, and as much into looking through
    the trees of syntax of each kernel while it is compiled. What tests leave behind is still collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 100)
    gc.enable()


def _runs_everything(config: pytest.Config) -> bool:
    return bool(config.getoption("--slow")) or "slow" in (config.getoption("markexpr") or "")


def _leave_out_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _runs_everything(config):
        return
    _deselect(config, items, [item for item in items if item.get_closest_marker("slow")])


def _thin_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep of each function some cases, each on one engine.

    A function that the command line names is kept whole.
    """
    if _runs_everything(config):
        return
    named = {argument.split("::")[-1].partition("[")[0] for argument in config.args if "::" in argument}
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if getattr(item, "originalname", None) not in named:
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    _deselect(config, items, [item for name, group in functions.items() for item in _others(name, group)])


def _others(name: str, group: list[pytest.Item]) -> Iterator[pytest.Item]:
    """What of a function's tests is left out."""
    mark = group[0].get_closest_marker("thinned")
    is_on_engine = _engine(group[0]) is not None
    default = TABLE_STEP if is_on_engine else 1
    step = mark.args[0] if mark else default
    cases = list(dict.fromkeys(map(_case, group)))
    engines = dict[str, str | None]()
    # On a GPU, where tests run seldom, both engines do what is no table.
    needs_both = group[0].get_closest_marker("each_engine") or (group[0].get_closest_marker("gpu") and len(cases) == 1)
    if is_on_engine and not needs_both:
        engines = {case: choose_engine(name, place) for place, case in enumerate(cases)}
    chosen = {cases[place] for place in choose_cases(name, len(cases), step)}
    return (one for one in group if _case(one) not in chosen or engines.get(_case(one), _engine(one)) != _engine(one))


def _engine(item: pytest.Item) -> str | None:
    specification = getattr(item, "callspec", None)
    return specification.params.get("engine") if specification else None


def _case(item: pytest.Item) -> str:
    """The test's name without its engine."""
    return item.nodeid.replace(str(_engine(item)), "")


def _hurry(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --fast: leave out what takes long, and most of the cases on an engine."""
    if config.getoption("--fast"):
        _deselect(config, items, [item for item in items if not _is_fast(item)])


def _is_fast(item: pytest.Item) -> bool:
    folder = item.nodeid.split("/")[1] if item.nodeid.count("/") > 1 else ""
    if folder in LONG_FOLDERS or _starts_processes(item):
        return False
    return _engine(item) is None or is_in_fast_run(_case(item))


def _starts_processes(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "module", None), "subprocess") or "pytester" in getattr(item, "fixturenames", ())


def _deselect(config: pytest.Config, items: list[pytest.Item], left_out: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def _skip_gpu_without_one(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


def wanted_configuration(item: pytest.Item) -> Configuration:
    """How the engines must run for this test."""
    return Configuration(
        arch="cuda" if item.get_closest_marker("gpu") else "cpu",
        default_fp="f64" if "lang64" in getattr(item, "fixturenames", ()) else "f32",
    )


@pytest.fixture(scope="session")
def engine_keeper(request: pytest.FixtureRequest) -> Iterator[EngineKeeper]:
    """Starts engines; a test that needs one in an unusual state asks the engine itself instead."""
    keeper = EngineKeeper(request.config.cache.mkdir("engines"))
    yield keeper
    keeper.stop()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, engine_keeper: EngineKeeper) -> str:
    """The name of an engine that runs as this test wants it."""
    engine_keeper.ensure(request.param, wanted_configuration(request.node))
    return request.param


@pytest.fixture
def lang(engine: str, engine_keeper: EngineKeeper, request: pytest.FixtureRequest) -> ModuleType:
    """The module of `engine`, to write kernels with: `lang.kernel`, `lang.types.ndarray()`."""
    return engine_keeper.ensure(engine, wanted_configuration(request.node))


@pytest.fixture
def lang64(lang: ModuleType) -> ModuleType:
    """`lang` with default_fp=f64; asking for this fixture is what makes it so."""
    return lang


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Where the test's tensors live."""
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


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Every test sees the same random numbers, whatever ran before it, and leaves torch's as they were."""
    state = torch.get_rng_state()
    # Where there is no GPU, `torch.manual_seed` notes the stack of each call for devices that never come.
    seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
    seed(0)
    yield
    torch.set_rng_state(state)


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    """No test depends on what others compiled: torch compiles `__call__` for eight ops of a process at most."""
    yield
    if "torch._dynamo" in sys.modules:
        # Not `torch.compiler.reset`, which loads torch's default backend where a test says that there is a GPU.
        torch._dynamo.reset_code_caches()
