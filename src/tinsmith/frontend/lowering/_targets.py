"""Iteration and unpacking at compile time."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ...engines import walk
from ...ir import Misfit
from .._nodes import root
from ._lowering import Lowering
from ._values import Matrix, Struct, kind_of


def unpack_starred(
    low: Lowering, items: list[ast.expr], value_of: Callable[[ast.expr], Any] | None = None
) -> list[Any]:
    """Return the values of a list of expressions, `Lowering.value` by default, with starred ones unpacked."""
    value_of = value_of or low.value
    values: list[Any] = []
    for item in items:
        if isinstance(item, ast.Starred):
            values.extend(list_items(low.value(item.value)))
        else:
            values.append(value_of(item))
    return values


def list_items(value: Any) -> list[Any]:
    """Return the items of a value that is iterated over at compile time."""
    if isinstance(value, Matrix):
        return value.rows
    if isinstance(value, Struct):
        return list(value.members.values())
    try:
        return list(value)
    except TypeError:
        raise Misfit(f"iteration over {kind_of(value)}") from None


def give(low: Lowering, target: ast.expr, value: Any) -> None:
    """Bind the names of a target to a value, without emitting a local."""
    if isinstance(target, ast.Name):
        low.state.let(target.id, value)
        return
    if not isinstance(target, ast.Tuple):
        raise low.make_refusal(
            (
                f"`{ast.unparse(target)}` as a target of a static assignment or loop, which "
                "can only be a name or a tuple of names"
            ),
            target,
        )
    values = list_items(value)
    if len(values) != len(target.elts):
        raise low.make_refusal(f"an assignment of {len(values)} values to the targets `{ast.unparse(target)}`", target)
    for part, item in zip(target.elts, values, strict=True):
        give(low, part, item)


def find_stored_names(block: ast.FunctionDef | ast.For) -> frozenset[str]:
    """Return the names that the body of a function or loop stores to, in whole or in part."""
    inside = (node for statement in block.body for node in walk(statement))
    stored = (node for node in inside if isinstance(node, ast.Name | ast.Subscript | ast.Attribute | ast.Starred))
    return frozenset(root(node) for node in stored if isinstance(node.ctx, ast.Store))
