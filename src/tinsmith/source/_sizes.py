"""Sizes and dtypes that must be known when a kernel is compiled: fields' are, arrays' are not."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

from ..engines import Engine
from ._calls import callee_of
from ._nodes import resolve_callee
from ._read import Source
from ._walk import walk


def static_size(source: Source, arrays: Collection[str], engine: Engine, owner: Any) -> str:
    """Where a kernel, or a function it calls, needs an array's shape or dtype while it is compiled; "" where not.

    `if ti.static(x.shape[0] > 2)` is decided at compilation. For an array the shape is an expression
    then, which Python takes for true, whatever it would be.
    """
    return _in_body(source, frozenset(arrays), engine, owner, frozenset())


def _in_body(source: Source, arrays: frozenset[str], engine: Engine, owner: Any, seen: frozenset[object]) -> str:
    for node in source.nodes:
        for static in _static_parts(node):
            if _has_size(static, arrays):
                return source.place(static)
    for call in source.calls:
        callee = callee_of(source, call, engine, owner)
        arguments = callee.arguments.items() if callee else ()
        given = frozenset(name for name, a in arguments if isinstance(a, ast.Name) and a.id in arrays)
        if callee and given and callee.source.function not in seen:
            place = _in_body(callee.source, given, engine, callee.owner, seen | {callee.source.function})
            if place:
                return place
    return ""


def _static_parts(node: ast.AST) -> list[ast.AST]:
    """What of a node is computed at compilation: arguments of `static`, a matrix's dims, a comprehension's range."""
    if isinstance(node, ast.Call):
        is_static = resolve_callee(node) in ("static", "static_assert") or _makes_matrix(node)
        return list(node.args) if is_static else []
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        calls = [inner for generator in node.generators for inner in walk(generator.iter)]
        return [call for call in calls if resolve_callee(call) in ("range", "ndrange")]
    return []


def _has_size(node: ast.AST, arrays: frozenset[str]) -> bool:
    """Whether an expression uses a size or a dtype. `len(x.shape)` is none: an array's rank is known."""
    if resolve_callee(node) == "len":
        return False
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype"):
        return isinstance(node.value, ast.Name) and node.value.id in arrays
    return any(_has_size(child, arrays) for child in ast.iter_child_nodes(node))


def _makes_matrix(call: ast.Call) -> bool:
    """`Vector.zero(dtype, n)` and its like, whose dims are those of a type."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
    return name in ("Vector", "Matrix") and resolve_callee(call) in ("zero", "one", "unit", "identity")
