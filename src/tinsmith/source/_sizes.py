"""Sizes and dtypes that must be known when a kernel is compiled: fields' are, arrays' are not."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ..engines import Engine
from ._nodes import called
from ._read import Source, read
from ._walk import walk


def static_size(source: Source, arrays: Collection[str], engine: Engine) -> str:
    """Where a kernel, or a function it calls, needs an array's shape or dtype while it is compiled; "" where not.

    `if ti.static(x.shape[0] > 2)` is decided at compilation. For an array the shape is an expression
    then, which Python takes for true, whatever it would be.
    """
    return _in_body(source, frozenset(arrays), engine, set())


def _in_body(source: Source, arrays: frozenset[str], engine: Engine, seen: set[object]) -> str:
    for node in source.nodes:
        for static in _static_parts(node):
            if _has_size(static, arrays):
                return source.place(static)
        found = _in_function(source, node, arrays, engine, seen) if isinstance(node, ast.Call) else ""
        if found:
            return found
    return ""


def _static_parts(node: ast.AST) -> list[ast.AST]:
    """What of a node is worked out at compilation: arguments of `static`, a matrix's dims, a comprehension's range."""
    if isinstance(node, ast.Call):
        is_static = called(node) in ("static", "static_assert") or _makes_matrix(node)
        return list(node.args) if is_static else []
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        calls = [inner for generator in node.generators for inner in walk(generator.iter)]
        return [call for call in calls if called(call) in ("range", "ndrange")]
    return []


def _has_size(node: ast.AST, arrays: frozenset[str]) -> bool:
    """Whether an expression uses a size or a dtype. `len(x.shape)` is none: an array's rank is known."""
    if called(node) == "len":
        return False
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype"):
        return isinstance(node.value, ast.Name) and node.value.id in arrays
    return any(_has_size(child, arrays) for child in ast.iter_child_nodes(node))


def _makes_matrix(call: ast.Call) -> bool:
    """`Vector.zero(dtype, n)` and its like, whose dims are those of a type."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
    return name in ("Vector", "Matrix") and called(call) in ("zero", "one", "unit", "identity")


def _in_function(source: Source, call: ast.Call, arrays: frozenset[str], engine: Engine, seen: set[object]) -> str:
    """The same in an engine function that is given an array."""
    given = [place for place, a in enumerate(call.args) if isinstance(a, ast.Name) and a.id in arrays]
    if not given or not isinstance(call.func, ast.Name):
        return ""
    try:
        function = engine.inner_function(source.lookup(call.func.id))
    except KeyError:  # not assigned yet: nothing to look into
        return ""
    if function is None or function in seen:
        return ""
    inner = read(function)
    names = frozenset(inner.parameters[place] for place in given if place < len(inner.parameters))
    return _in_body(inner, names, engine, seen | {function})
