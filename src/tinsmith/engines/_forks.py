"""Forks: engines in a process that `os.fork` made, such as a worker of a DataLoader.

A fork copies an engine's memory and none of its threads: the child would wait for them forever, at its first parallel
launch or when it compiles a kernel. So the child takes the program off each running engine and never touches it again.
The engine looks as if it was not started, and is started again, with the same settings, when it is asked for its
runtime: kernels are compiled again then. Fields are gone, as after any restart.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .._errors import EngineError, refusal
from .._offers import leaving_programs
from ._compiling import COMPILING
from ._contract import Engine

FORK_REMEDY = (
    'Start the process by `multiprocessing_context="spawn"` (an option of a DataLoader too), and make fields and '
    "layers in it."
)
"""The remedy for what an engine cannot do in a forked process."""
_SETTINGS = (
    "ad_stack_experimental_enabled",
    "ad_stack_size",
    "advanced_optimization",
    "cfg_optimization",
    "debug",
    "fast_math",
    "flatten_if",
    "offline_cache",
    "offline_cache_file_path",
    "opt_level",
    "random_seed",
    "real_matrix_scalarize",
)
"""Options that a kernel or its gradient depends on, and where compiled kernels are kept."""
_forked: set[str] = set()
"""Names of engines that ran when this process, or one before it, was forked."""
_waiting: dict[str, dict[str, Any]] = {}
"""How to start the engines that ran when this process was forked and were not started since, by name."""


_programs: weakref.WeakSet[Any] = weakref.WeakSet()
"""Programs for which kernels were compiled, of earlier starts of an engine too, while anything refers to them."""


def remember_program(program: Any) -> None:
    """Register a program whose destructor must not run in a forked process: it joins threads that are only here."""
    _programs.add(program)


def survive_forks(lock: Any) -> Any:
    """Let a lock that another thread holds delay a fork, so that the child finds it free. Returns the lock."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def watch_forks(list_loaded: Callable[[], Iterable[Engine]]) -> None:
    """Take the programs off the engines in each process that is forked from this one."""

    def detach_programs() -> None:
        running = [(engine, engine.detach_program()) for engine in list_loaded()]
        # A program's destructor waits for its threads, also at the end of the process, so it must never run.
        for program in {*_programs, *(program for _, program in running if program is not None)}:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(program))
        for engine, program in running:
            if program is not None:
                _forked.add(engine.name)
                _waiting[engine.name] = _find_settings(engine, program.config())
                # Compiled kernels are written to disk by the process that was forked, not by each child as well.
                program.config().offline_cache = False
                program.finalize()  # another program can be made then

    leaving_programs.register(detach_programs)
    survive_forks(COMPILING)


def _find_settings(engine: Engine, config: Any) -> dict[str, Any]:
    """The options of `Engine.start`, its device included, that a program was started with."""
    settings = {name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)}
    for kind in ("default_fp", "default_ip"):
        settings[kind] = getattr(engine.lang, getattr(config, kind).to_string())
    return {"device_type": "cpu" if config.arch.name in ("x64", "arm64") else config.arch.name, **settings}


def remedy_for_lost_field(engine: Engine, remedy: str) -> str:
    """Return the remedy for a field that a restart of the engine destroyed: `remedy`, except where a fork was why."""
    return f"This process was forked, which no field survives. {FORK_REMEDY}" if engine.name in _forked else remedy


def restart_after_fork(engine: Engine) -> Any:
    """Start an engine again that was running when this process was forked, and return its runtime; None if none was.

    Raises:
        EngineError: it ran on a GPU, which no forked process can use, or it cannot be started.
    """
    if engine.name not in _waiting:
        return None
    with COMPILING:
        settings = _waiting.get(engine.name)
        if settings is None:
            return engine.runtime()
        if settings["device_type"] != "cpu":
            words = f"engine {engine.name!r} ran on a GPU when this process was forked, and cannot run in it"
            raise EngineError(refusal(words, remedy=FORK_REMEDY))
        del _waiting[engine.name]
        # Torch's own threads are not forked either, and its next parallel operation would wait for them.
        torch.set_num_threads(1)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                engine.start(cpu_max_num_threads=1, **settings)
        except Exception as cause:
            words = f"engine {engine.name!r} cannot be started again in this process, which was forked"
            raise EngineError(refusal(words, [("because", str(cause))], FORK_REMEDY)) from cause
        return engine.runtime()
