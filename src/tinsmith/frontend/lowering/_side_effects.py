"""Whether the calls of a statement leave memory and the caller's locals as they are.

Then its parts may be computed in any order, and what is used several times may be put in a local. Where
that is not known, the answer is no.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

from .._effects import changes_of
from .._fingerprints import MISSING
from .._nodes import resolve_callee
from .._read import Source
from .._walk import walk
from ._lowering import Lowering
from ._values import BoundFunction, Struct

_CHANGING = ("atomic_", "random", "append", "activate", "fill", "sync")


def is_quiet(low: Lowering, *expressions: ast.AST | None) -> bool:
    """Whether no call in these expressions changes anything, and no `:=` does."""

    def value(node: ast.expr) -> Any:
        return _meaning(low, node)

    if any(low.fact(_assigns, one) for one in expressions if one is not None):
        return False
    seen: set[Any] = set()
    return all(_are_calls_quiet(low, expression, value, seen) for expression in expressions if expression is not None)


def without_last_change(low: Lowering, statement: ast.AST) -> list[ast.AST]:
    """The parts of a statement that are computed before its own atomic, where it is nothing but that one."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return [statement]
    call = statement.value
    is_atomic = low.language.name_of(_meaning(low, call.func)).startswith("lang.ops.atomic")
    return [*call.args] if is_atomic else [statement]


def _are_calls_quiet(low: Lowering, tree: ast.AST, meaning: Callable[[ast.expr], Any], seen: set[Any]) -> bool:
    """`seen` are functions that were looked into: once is enough, also where one calls itself."""
    return all(_is_call_quiet(low, node, meaning, seen) for node in low.fact(_calls, tree))


def _calls(tree: ast.AST) -> tuple[ast.Call, ...]:
    return tuple(node for node in walk(tree) if isinstance(node, ast.Call))


def _assigns(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.NamedExpr) for node in walk(tree))


def _is_call_quiet(low: Lowering, node: ast.Call, meaning: Callable[[ast.expr], Any], seen: set[Any]) -> bool:
    name = resolve_callee(node)
    if name.startswith(_CHANGING):
        return False
    value = meaning(node.func)
    if value is MISSING:
        return low.language.matrix_operation(name) is not None or name == "get_shape"
    function = low.engine.inner_function(value.function if isinstance(value, BoundFunction) else value)
    if function is None:
        return (
            low.language.name_of(value) != "" or not callable(value) or hasattr(builtins, name) or _is_type(low, value)
        )
    if function in seen:
        return True
    seen.add(function)
    return _is_function_quiet(low, low.read(function), seen)


def _is_type(low: Lowering, value: Any) -> bool:
    language = low.language
    return language.matrix_type(value) is not None or language.struct_type(value) is not None or low.engine.owns(value)


def _is_function_quiet(low: Lowering, source: Source, seen: set[Any]) -> bool:
    references = {name for name in source.parameters if source.is_template(name)}  # the caller's own locals and arrays
    for node in source.nodes:
        for target in _targets(node):
            if not isinstance(target, ast.Name) or target.id in references:
                return False
    return all(_are_calls_quiet(low, statement, source.value, seen) for statement in source.tree.body)


def _targets(node: ast.AST) -> list[ast.expr]:
    return [node.target] if isinstance(node, ast.NamedExpr) else [one.target for one in changes_of(node)]


def _meaning(low: Lowering, node: ast.expr) -> Any:
    """What a name, or an attribute of one, means where the statement stands."""
    if isinstance(node, ast.Attribute):
        value = _meaning(low, node.value)
        if isinstance(value, Struct):
            method = value.methods.get(node.attr, MISSING)
            return value.members.get(node.attr, method)
        return MISSING if value is MISSING else getattr(value, node.attr, MISSING)
    if not isinstance(node, ast.Name):
        return MISSING
    is_local, value = low.state.find(node.id)
    return value if is_local else low.state.frame.source.value(node)
