"""Whether a kernel draws random numbers, multiplies atomically or divides, itself or in the functions that it calls."""

from __future__ import annotations

import ast
from typing import Any

from ..engines import Engine
from ._read import Source, called_function, read

_DRAWING = ("random", "randn")


def draws(source: Source, engine: Engine) -> bool:
    """Whether `ti.random` or `ti.randn` is called anywhere in a kernel."""
    return _calls(source, engine, _DRAWING, set())


def multiplies_atomically(source: Source, engine: Engine) -> bool:
    """Whether `ti.atomic_mul` is called anywhere in a kernel."""
    return _calls(source, engine, ("atomic_mul",), set())


def divides(source: Source, engine: Engine) -> bool:
    """Whether a kernel has `//`, `%` or their functions anywhere, of integers or of floats."""
    return _calls(source, engine, ("floordiv", "mod"), set(), (ast.FloorDiv, ast.Mod))


def _calls(
    source: Source,
    engine: Engine,
    names: tuple[str, ...],
    seen: set[Any],
    operators: tuple[type[ast.operator], ...] = (),
) -> bool:
    """Whether a kernel or a function of it calls one of the engine's functions, or uses one of Python's operators."""
    if any(isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, operators) for node in source.nodes):
        return True
    called = (called_function(source, node.func) for node in source.nodes if isinstance(node, ast.Call))
    for value in called:
        if getattr(value, "__name__", "") in names and engine.owns(value):
            return True
        inner = None if value is None else engine.inner_function(value)
        if inner is None or inner in seen:
            continue
        seen.add(inner)
        if _calls(read(inner), engine, names, seen, operators):
            return True
    return False
