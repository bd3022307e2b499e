"""Which function of the engine's an expression calls."""

from __future__ import annotations

import ast

from ._lowering import Lowering
from ._state import ENGINE


def is_static(low: Lowering, node: ast.expr) -> bool:
    """Whether an expression is a call of `ti.static`."""
    return find_callee_name(low, node) == "lang.impl.static"


def find_callee_name(low: Lowering, node: ast.expr) -> str:
    """What the engine calls the function that an expression calls; "" for any other expression."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return ""
    root = _root(node.func)
    if root != ENGINE and low.state.find(root)[0]:
        return ""
    return low.language.name_of(low.value(node.func))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
