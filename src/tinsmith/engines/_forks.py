"""Engines in a process that `os.fork` made, such as a worker of a DataLoader.

A fork copies an engine's memory but none of its threads: the child would wait for them forever, at its first parallel
launch or when it compiles a kernel. So the child removes the program from each running engine and never uses it
again. The engine then looks as if it was not started. It is started again, with the same settings, when its runtime
is asked for; kernels are compiled again then. Fields are lost, as after any restart.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from .._errors import EngineError, refusal
from .._offers import leaving_programs
from ._compiling import COMPILING
from ._contract import Engine

FORK_REMEDY = (
    'Start the process by `multiprocessing_context="spawn"` (an option of a DataLoader too), and make fields and '
    "layers in it."
)
"""The advice in errors about what an engine cannot do in a forked process."""
_SETTINGS = (
    "ad_stack_experimental_enabled",
    "ad_stack_size",
    "advanced_optimization",
    "cache_loop_invariant_global_vars",
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
"""Options that affect a kernel or its gradient, or say where compiled kernels are cached."""
_forked: set[str] = set()
"""Names of engines that were running when this process, or an ancestor of it, was forked."""
_waiting: dict[str, dict[str, Any]] = {}
"""Settings of the engines that ran when this process was forked and have not been started since, by name."""


_programs: weakref.WeakSet[Any] = weakref.WeakSet()
"""All programs, also of earlier starts of an engine, for which kernels were compiled and which still exist."""


def remember_program(program: Any) -> None:
    """Register a program whose destructor must not run in a forked process, where the threads that it joins do not
    exist.
    """
    _programs.add(program)


def survive_forks(lock: Any) -> Any:
    """Make `os.fork` wait until a lock is free, so that the child never inherits it locked. Return the lock."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def watch_forks(list_loaded: Callable[[], Iterable[Engine]]) -> None:
    """Register a handler that removes the programs from the engines in each process forked from this one."""

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
    """Return the arguments of `Engine.start`, including the device, with which a program was started."""
    settings = {name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)}
    for kind in ("default_fp", "default_ip"):
        settings[kind] = getattr(engine.lang, getattr(config, kind).to_string())
    return {"device_type": "cpu" if config.arch.name in ("x64", "arm64") else config.arch.name, **settings}


def remedy_for_lost_field(engine: Engine, remedy: str) -> str:
    """Return advice about a field that a restart destroyed: `remedy`, or other advice if the process was forked."""
    return (
        f"This process was forked, and fields do not survive a fork. {FORK_REMEDY}"
        if engine.name in _forked
        else remedy
    )


def restart_after_fork(engine: Engine) -> Any:
    """Start an engine again that ran when this process was forked. Return its runtime, or None if it did not run.

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
        import torch  # late, since a check of files needs none

        torch.set_num_threads(1)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                engine.start(cpu_max_num_threads=1, **settings)
        except Exception as cause:
            words = f"engine {engine.name!r} cannot be started again in this process, which was forked"
            raise EngineError(refusal(words, [("because", str(cause))], FORK_REMEDY)) from cause
        return engine.runtime()
