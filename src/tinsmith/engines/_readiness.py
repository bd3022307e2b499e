"""Checks that an engine is ready: started, its fields placed, its memory allocated on the right thread."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import torch

from .._errors import EngineError, refusal
from ._contract import Engine
from ._fields import find_unplaced
from ._registry import module_name


def materialize(engine: Engine) -> None:
    """Allocate an engine's memory on the main thread, so that the first launch may come from any other thread.

    Otherwise the first launch from a thread other than the one that started the engine fails an assertion (taichi
    #2022), and so does the first after new fields were placed. While fields or gradients are declared and not placed,
    and in other threads, do nothing: then the first launch raises an EngineError (`require_materialized`).
    """
    if threading.current_thread() is not threading.main_thread():
        return
    runtime = engine.runtime()
    if runtime is not None and not find_unplaced(runtime) and not _open_builders(engine, runtime):
        runtime.materialize()


def _open_builders(engine: Engine, runtime: Any) -> list[Any]:
    """Return the FieldsBuilders that are not finalized, except the root's own, which the engine
    finalizes when needed.
    """
    root = engine.lang.root.ptr
    return [one for one in runtime.unfinalized_fields_builder if one.ptr is not root]


def require_placed(engine: Engine) -> None:
    """Raise EngineError if any field of the program is declared but not placed: the engine would run no
    kernel at all.
    """
    runtime = require_started(engine)
    if _open_builders(engine, runtime):
        words = f"{engine.name} cannot run a kernel while a FieldsBuilder is not finalized"
        raise EngineError(refusal(words, remedy="Call its `.finalize()` after the last `.place(...)`."))
    waiting = find_unplaced(runtime)
    if not waiting:
        return
    # `is`, since `==` of two of an engine's expressions makes a third one, not a bool.
    gradients = [one for one in waiting if any(one is other for other in runtime.grad_vars)]
    what, place = ("its gradient", "x, x.grad") if gradients else ("it", "x")
    asked = " with needs_grad=True" if gradients else ""
    words = f"{engine.name} cannot run a kernel while a field is declared{asked} and {what} is not placed"
    rows = [("declared", _declared_at(one, engine)) for one in gradients or waiting]
    remedy = (
        f"Place {what} too, `{module_name(engine.name)}.root.dense(...).place({place})`, or give the field a shape."
    )
    raise EngineError(refusal(words, rows[:3], remedy))


def _declared_at(variable: Any, engine: Engine) -> str:
    """Return the user's source line that declared a field, from the stack that the engine recorded."""
    lines = str(getattr(variable, "declaration_tb", "")).splitlines()
    frames = [line.strip() for line in lines if line.strip().startswith("File ")]
    users = [line for line in frames if f"/{engine.name}/" not in line]
    return users[-1] if users else "somewhere"


def require_started(engine: Engine, op: str = "") -> Any:
    """Return the engine's runtime. Raise EngineError if it has not been started."""
    runtime = engine.runtime()
    if runtime is None:
        where = f" for op `{op}`" if op else ""
        remedy = (
            f"Call `ts.init()` once, at the start of the program and below `import {engine.name}`: it starts each "
            f"engine that is imported. `{module_name(engine.name)}.init()` starts {engine.name} alone."
        )
        raise EngineError(refusal(f"engine {engine.name!r} has not been started{where}", remedy=remedy))
    return runtime


def require_materialized(engine: Engine, runtime: Any, op: str) -> None:
    """Raise EngineError if the first launch comes from another thread than the main one, which would
    crash the engine.
    """
    if runtime.materialized or threading.current_thread() is threading.main_thread():
        return
    raise EngineError(
        refusal(
            f"the first launch of engine {engine.name!r} came from another thread, by op `{op}`",
            [("thread", threading.current_thread().name)],
            "Start the engine with ts.init(), or make the op after the engine was started, or call it once "
            "from the main thread.",
        )
    )


def find_default_options(lang: ModuleType, device_type: str) -> dict[str, Any]:
    """Return the engine options that match torch's current settings: the default float and the number of threads."""
    is_double = torch.get_default_dtype() == torch.float64
    options = {"log_level": lang.WARN, "default_fp": lang.f64 if is_double else lang.f32}
    return options | ({"cpu_max_num_threads": torch.get_num_threads()} if device_type == "cpu" else {})


def device_type(arch: Any) -> str:
    """Return torch's name ("cpu" or "cuda") for the engine's device. Raise EngineError for other devices."""
    name = arch.name
    if name == "cuda":
        return "cuda"
    if name in ("x64", "arm64"):
        return "cpu"
    raise EngineError(
        refusal(
            "ops run on the CPU or on CUDA",
            [("engine runs on", name)],
            "Start the engine with ts.init(), which chooses the CPU or CUDA.",
        )
    )
