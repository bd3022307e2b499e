"""Locks: each is on the page, they are taken in its order, and what they guard is made once."""

import ast
import re
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import torch

import tinsmith as ts
from support.forked import run_forked
from support.locks import ORDER, LockRecorder, RecordedLock
from tinsmith.calls import _language
from tinsmith.engines import get
from tinsmith.engines._registry import _PYTHON
from tinsmith.frontend import _fingerprints
from tinsmith.layers.tube import _fields
from tinsmith.time._operators import ScanOperators

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tinsmith"
PAGE = (ROOT / "docs/about/locks.md").read_text(encoding="utf-8")
KINDS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"}


def find_locks():
    """Return the files that make locks."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"threading.{kind}" for kind in KINDS}:
                yield path.relative_to(SOURCE).as_posix()


def test_every_lock_is_on_the_page():
    rows = re.findall(r"^\| `?(.*?)`? \| `(\S+?\.py)` \|", PAGE, re.MULTILINE)
    assert sorted(path for _, path in rows) == sorted(find_locks())
    # Forks do not wait for the lock of launches on CUDA, since a forked process cannot use CUDA.
    assert tuple(name for name, _ in rows if name in ORDER) == ORDER
    assert [name for name, _ in rows[: len(ORDER) + 1] if name not in ORDER] == ["ProgramStreams.lock"]


def test_no_class_lock_of_functools_is_held_while_another_lock_is_taken():
    """Before Python 3.12 `cached_property` holds a lock of its class meanwhile: those that may compile are `lazy`."""
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*@(functools\.)?cached_property", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    # None of these looks at a kernel.
    assert users == {
        "apps/scenes/_built_in_scene.py",
        "apps/simulate/_jelly_video.py",
        "apps/simulate/_wave_source.py",
        "layers/fields/_layer_field.py",
        "layers/tube/_blueprint.py",
        "layers/tube/_parts.py",
        "passes/blocks/_layout.py",
    }


IMPORT_ALL = """
import importlib, pkgutil, tinsmith
from tinsmith.engines import COMPILING

def fail(self):
    raise AssertionError("taken during an import")

type(COMPILING).__enter__ = fail
for module in pkgutil.walk_packages(tinsmith.__path__, "tinsmith."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("done")
"""


def test_no_module_takes_a_lock_when_it_is_imported():
    """Another thread may hold the lock, and wait for the import."""
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], check=False, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr


FORKING = """
import os
locks = []
os.register_at_fork = lambda *, before=None, **_: locks.append(getattr(before, "__self__", None))
import tinsmith
from tinsmith.engines import COMPILING
from tinsmith.engines._registry import PYTHON_LOCKS
from tinsmith.layers._pool import FIELDS_LOCK
names = {id(FIELDS_LOCK): "FIELDS_LOCK", id(COMPILING): "COMPILING"}
names |= {id(lock): "Python.lock" for lock in PYTHON_LOCKS.values()}
print(*(names[id(one)] for one in reversed(locks) if id(one) in names))
"""


def test_a_fork_takes_the_locks_in_order():
    """Those that were registered last it takes first."""
    done = subprocess.run([sys.executable, "-c", FORKING], check=True, capture_output=True, text=True, timeout=120)
    assert tuple(dict.fromkeys(done.stdout.split())) == ORDER


def test_the_recorder_finds_an_inversion():
    recorder = LockRecorder()
    first, second = (RecordedLock(name, threading.RLock(), recorder) for name in (ORDER[0], ORDER[-1]))
    with first, second, first:
        pass
    assert recorder.find_inversions() == []
    with second, second, first:
        pass
    assert recorder.find_inversions() == [(ORDER[-1], ORDER[0])]
    assert recorder.held == []


def in_two_threads(function):
    """Return the results of a function that two threads call at once."""
    with ThreadPoolExecutor(2) as pool:
        return [one.result() for one in [pool.submit(function) for _ in range(2)]]


def test_two_threads_make_the_operator_of_scans_once(lang, monkeypatch):
    """torch refuses to define an operator twice."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def halved(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 0.5 * x[i]

    meeting, make = threading.Barrier(2), ScanOperators.__init__

    def make_slowly(self, *given):
        try:
            meeting.wait(0.3)
        except threading.BrokenBarrierError:
            pass
        make(self, *given)

    monkeypatch.setattr(ScanOperators, "__init__", make_slowly)
    names = in_two_threads(halved.scan_operator)
    assert names[0] == names[1] is not None


def test_two_threads_give_an_object_the_same_number(monkeypatch):
    class Thing:
        """An object that is compared by identity."""

    thing, meeting, make = Thing(), threading.Barrier(2), weakref.ref

    def make_slowly(*given):
        try:
            meeting.wait(0.3)
        except threading.BrokenBarrierError:
            pass
        return make(*given)

    monkeypatch.setattr(_fingerprints, "weakref", SimpleNamespace(ref=make_slowly))
    numbers = in_two_threads(lambda: _fingerprints._serial(thing))
    assert numbers == [_fingerprints._serial(thing)] * 2


def test_two_threads_start_an_engine_once(engine, monkeypatch):
    """The second start would destroy what the first thread has compiled since."""
    starts, meeting = [], threading.Barrier(2)

    def start_slowly(device, name):
        try:
            meeting.wait(0.3)
        except threading.BrokenBarrierError:
            pass
        starts.append(name)

    monkeypatch.setattr(_language, "list_running", lambda: starts)
    monkeypatch.setattr(_language, "init_quietly", start_slowly)
    assert in_two_threads(lambda: _language._running(engine, torch.device("cpu"))) == [get(engine)] * 2
    assert starts == [engine]


def test_two_threads_make_the_fields_of_a_tube_once(engine, monkeypatch):
    meeting, made = threading.Barrier(2), []

    def make_slowly(*given):
        try:
            meeting.wait(0.3)
        except threading.BrokenBarrierError:
            pass
        made.append(given)
        return object()

    monkeypatch.setattr(_fields, "FieldSet", make_slowly)
    blueprint = SimpleNamespace(kernels=[SimpleNamespace(engine=get(engine))])
    program = _fields.TubeOnFields(blueprint)
    first, second = in_two_threads(lambda: program._set({"x": (3,)}))
    assert first is second and len(made) == 1


def test_a_fork_waits_for_a_kernel_that_python_runs_in_another_thread(lang, engine):
    """The child would wait for the lock forever."""

    @ts.op("x[n] -> y[n]", engine="python")
    @lang.kernel
    def halved(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 0.5 * x[i]

    halved(torch.ones(2))
    began, forked = threading.Event(), threading.Event()

    def run_slowly():
        with _PYTHON[engine].lock:
            began.set()
            assert not forked.wait(0.2)

    thread = threading.Thread(target=run_slowly)
    thread.start()
    began.wait()
    words = run_forked(lambda: halved(torch.ones(2)).tolist(), 20.0)
    forked.set()
    thread.join()
    assert words == "[0.5, 0.5]"
