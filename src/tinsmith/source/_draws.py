"""Whether a kernel draws random numbers, divides, uses certain atomics or shared memory, itself or in its functions."""

from __future__ import annotations

import ast
from typing import Any

from ..engines import Engine
from ._read import Source, called_function, read

_DRAWING = ("random", "randn")
_ATOMIC = tuple(f"atomic_{word}" for word in ("add", "sub", "min", "max", "and", "or", "xor", "mul"))


def draws(source: Source, engine: Engine) -> bool:
    """Whether `ti.random` or `ti.randn` is called anywhere in a kernel."""
    return _first(source, engine, _DRAWING, set()) is not None


def multiplies_atomically(source: Source, engine: Engine) -> bool:
    """Whether `ti.atomic_mul` is called anywhere in a kernel."""
    return _first(source, engine, ("atomic_mul",), set()) is not None


def returns_from_atomics(source: Source, engine: Engine) -> bool:
    """Whether what an atomic returns is used anywhere in a kernel."""
    return _first(source, engine, _ATOMIC, set(), must_be_used=True) is not None


def divides(source: Source, engine: Engine) -> bool:
    """Whether a kernel has `//`, `%` or their functions anywhere, of integers or of floats."""
    return _first(source, engine, ("floordiv", "mod"), set(), (ast.FloorDiv, ast.Mod)) is not None


def shared_memory(source: Source, engine: Engine) -> str | None:
    """Where a kernel asks for memory that the threads of a block share, `file:line`; None where it does not."""
    return _first(source, engine, ("SharedArray",), set())


def _first(
    source: Source,
    engine: Engine,
    names: tuple[str, ...],
    seen: set[Any],
    operators: tuple[type[ast.operator], ...] = (),
    *,
    must_be_used: bool = False,
) -> str | None:
    """Where a kernel or a function of it calls one of the engine's functions, or uses one of Python's operators.

    With `must_be_used`, a call whose result nobody takes does not count.
    """
    for node in source.nodes:
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, operators):
            return source.place(node)
    idle = {node.value for node in source.nodes if isinstance(node, ast.Expr)} if must_be_used else set()
    called = ((node, called_function(source, node.func)) for node in source.nodes if isinstance(node, ast.Call))
    for node, value in called:
        if node not in idle and getattr(value, "__name__", "") in names and engine.owns(value):
            return source.place(node)
        inner = None if value is None else engine.inner_function(value)
        if inner is None or inner in seen:
            continue
        seen.add(inner)
        found = _first(read(inner), engine, names, seen, operators, must_be_used=must_be_used)
        if found is not None:
            return found
    return None
