"""Chooses the engine for the library's own kernels.

A module stores at most an engine's name. The engine is chosen, and if necessary started without its greeting, at the
first call on a device.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from .._errors import DeviceError, EngineError, refusal
from ..engines import COMPILING, Engine, choose_default, get, init_quietly, list_loaded, list_running
from ..tracing import constant_when_traced

_SETTLED: dict[tuple[str | None, str], tuple[Engine, Any]] = {}
"""The engine of each device, and its runtime at that time. Choosing again would take 50 us per call."""


@constant_when_traced
def language(engine: str | None, device: torch.device) -> ModuleType:
    """Return the module of an engine that runs on `device`, to build kernels with.

    Args:
        engine: "taichi" or "quadrants"; None for a running engine, else an imported one, else that of `choose_default`.
        device: the device of the tensors.

    Raises:
        EngineError: the engine is unknown or not installed.
        DeviceError: it runs on another device. It is not restarted, since that would destroy its fields.
    """
    if device.type == "meta":  # nothing is launched: any engine will do
        device = torch.device(next((get(name).device_type() for name in list_running()), "cpu"))
    settled = _SETTLED.get((engine, device.type))
    if settled is not None and settled[0].runtime() is settled[1]:
        return settled[0].lang
    runner = _running(engine or _choose_engine(device.type), device)
    _SETTLED[engine, device.type] = runner, runner.runtime()
    return runner.lang


def _running(name: str, device: torch.device) -> Engine:
    if name == "python":
        words = "`engine='python'` cannot be chosen for the library's kernels, which need a compiled engine"
        remedy = 'Leave `engine` out, and call ts.init(engine="python") or set TINSMITH_ENGINE=python.'
        raise EngineError(refusal(words, [("engine", name)], remedy))
    runner = get(name)
    # If two threads started it, each would destroy what the other has compiled.
    with COMPILING:
        if name not in list_running():
            init_quietly(device.type, name)
    if runner.device_type() != device.type:
        raise DeviceError(
            refusal(
                f"engine {name} runs on another device than the tensors",
                [("tensors", str(device)), ("engine", runner.device_type())],
                f"Move the module and its inputs there, or start the engine again: ts.init({device.type!r}, "
                f"engine={name!r}). A new start empties the engine's fields.",
            )
        )
    return runner


def _choose_engine(device_type: str) -> str:
    running = list_running()
    there = [name for name in running if get(name).device_type() == device_type]
    idle = [name for name in list_loaded() if name not in running]
    return next(iter([*there, *idle, *running]), None) or choose_default()
