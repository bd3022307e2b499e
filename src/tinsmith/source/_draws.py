"""Whether a kernel draws random numbers, divides, or uses certain atomics, itself or in the functions that it calls."""

from __future__ import annotations

import ast
from typing import Any

from ..engines import Engine
from ._read import Source, read
from ._references import called_function

_DRAWING = ("random", "randn")
_ATOMIC = tuple(f"atomic_{word}" for word in ("add", "sub", "min", "max", "and", "or", "xor", "mul"))


def draws(source: Source, engine: Engine) -> bool:
    """Whether `ti.random` or `ti.randn` is called anywhere in a kernel."""
    return _calls(source, engine, _DRAWING, set())


def multiplies_atomically(source: Source, engine: Engine) -> bool:
    """Whether `ti.atomic_mul` is called anywhere in a kernel."""
    return _calls(source, engine, ("atomic_mul",), set())


def returns_from_atomics(source: Source, engine: Engine) -> bool:
    """Whether what an atomic returns is used anywhere in a kernel."""
    return _calls(source, engine, _ATOMIC, set(), must_be_used=True)


def divides(source: Source, engine: Engine) -> bool:
    """Whether a kernel has `//`, `%` or their functions anywhere, of integers or of floats."""
    return _calls(source, engine, ("floordiv", "mod"), set(), (ast.FloorDiv, ast.Mod))


def _calls(
    source: Source,
    engine: Engine,
    names: tuple[str, ...],
    seen: set[Any],
    operators: tuple[type[ast.operator], ...] = (),
    *,
    must_be_used: bool = False,
) -> bool:
    """Whether a kernel or a function of it calls one of the engine's functions, or uses one of Python's operators.

    With `must_be_used`, a call whose result nobody takes does not count.
    """
    if any(isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, operators) for node in source.nodes):
        return True
    idle = {node.value for node in source.nodes if isinstance(node, ast.Expr)} if must_be_used else set()
    called = ((node, called_function(source, node.func)) for node in source.nodes if isinstance(node, ast.Call))
    for node, value in called:
        if node not in idle and getattr(value, "__name__", "") in names and engine.owns(value):
            return True
        inner = None if value is None else engine.inner_function(value)
        if inner is None or inner in seen:
            continue
        seen.add(inner)
        if _calls(read(inner), engine, names, seen, operators, must_be_used=must_be_used):
            return True
    return False
