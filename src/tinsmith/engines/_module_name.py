"""The name under which a user's file imports an engine, for code in messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from types import ModuleType
from typing import Any

USUAL_NAMES = {"taichi": "ti", "quadrants": "qd"}


def module_name(engine: str, function: Callable[..., Any] | None = None) -> str:
    """Return the name under which the file of a kernel's Python function imports an engine.

    Return the usual one, `ti` or `qd`, if no function is given or the function cannot see the module.

    Example:
        >>> module_name("quadrants")
        'qd'
    """
    if function is None:
        return USUAL_NAMES[engine]
    visible = {**function.__globals__, **dict(_closure(function))}
    modules = {name: one for name, one in visible.items() if isinstance(one, ModuleType)}
    # A kernel that tinsmith printed sees the module as `_lang`, which no user wrote.
    names = [name for name, one in modules.items() if one.__name__ == engine and name != "_lang"]
    code = function.__code__
    return preferred_name(engine, names, {*code.co_names, *code.co_freevars})


def preferred_name(engine: str, names: Collection[str], used: Collection[str]) -> str:
    """Choose one of several names of an engine's module: one in `used` if possible, else the usual one (`ti`, `qd`)."""
    usual = USUAL_NAMES.get(engine, "ti")
    return min(names, key=lambda name: (name not in used, name != usual), default=usual)


def _closure(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
