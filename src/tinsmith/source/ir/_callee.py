"""Which function of the engine's an expression calls."""

from __future__ import annotations

import ast

from .._nodes import root
from ._lowering import Lowering
from ._state import ENGINE


def is_static(low: Lowering, node: ast.expr) -> bool:
    """Whether an expression is a call of `ti.static`."""
    return find_callee_name(low, node) == "lang.impl.static"


def find_callee_name(low: Lowering, node: ast.expr) -> str:
    """What the engine calls the function that an expression calls; "" for any other expression."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return ""
    name = root(node.func)
    if name != ENGINE and low.state.find(name)[0]:
        return ""
    return low.language.name_of(low.value(node.func))
