"""The engine that our own kernels run on.

A module remembers at most an engine's name. Which one it is, and that it runs, is settled at the first call
on a device: a user who never started one gets one, without its greetings.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from .._errors import DeviceError, refusal
from ..engines import Engine, get, init_quietly, list_loaded, list_running
from ._tracing import constant_when_traced

_SETTLED: dict[tuple[str | None, str], tuple[Engine, Any]] = {}
"""Which engine runs where, and its runtime when that was asked: asking again would cost 50 us a call."""


@constant_when_traced
def language(engine: str | None, device: torch.device) -> ModuleType:
    """The module of an engine that runs on `device`, to build kernels with.

    Args:
        engine: "taichi" or "quadrants"; None for one that runs there already, else one that was imported, else Taichi.
        device: where the tensors are.

    Raises:
        EngineError: there is no such engine, or it is not installed.
        DeviceError: it runs already, on another device. It is not started again: that would empty its fields.
    """
    settled = _SETTLED.get((engine, device.type))
    if settled is not None and settled[0].runtime() is settled[1]:
        return settled[0].lang
    runner = _running(engine or _choose_engine(device.type), device)
    _SETTLED[engine, device.type] = runner, runner.runtime()
    return runner.lang


def _running(name: str, device: torch.device) -> Engine:
    runner = get(name)
    if name not in list_running():
        init_quietly(device.type, name)
    elif runner.device_type() != device.type:
        raise DeviceError(
            refusal(
                f"engine {name} does not run where the tensors are",
                [("tensors", str(device)), ("engine", runner.device_type())],
                f"Move the module and its inputs there, or start the engine again: ts.init({device.type!r}, "
                f"engine={name!r}). Its fields are emptied then.",
            )
        )
    return runner


def _choose_engine(device_type: str) -> str:
    running = list_running()
    there = [name for name in running if get(name).device_type() == device_type]
    idle = [name for name in list_loaded() if name not in running]
    return [*there, *idle, *running, "taichi"][0]
