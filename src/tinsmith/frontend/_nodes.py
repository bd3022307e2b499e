"""Questions about single nodes of a syntax tree: the function called, the array indexed, the names used.

A call is known by the name that an engine gives to the function, whatever the source calls it: `_read` resolves
names when it reads a kernel, and notes what it finds at the calls.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

from ._walk import walk

N = TypeVar("N", bound=ast.AST)

_NAME = "tinsmith_name"


def resolve_callee(node: ast.AST) -> str:
    """The name of the engine's or Python's function that a call calls: `ndrange`, for `nd(...)` too where `nd` is that.

    "" for a user's function, and for what is not a call. Where nothing tells what is called, as in a method of a
    local, the name that stands there.
    """
    if not isinstance(node, ast.Call):
        return ""
    name: str | None = getattr(node, _NAME, None)
    if name is not None:
        return name
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def note_name(call: ast.Call, name: str) -> None:
    """Note at a call what `resolve_callee` is to say; a copy of the call says so too."""
    setattr(call, _NAME, name)


def root(node: ast.AST) -> str:
    """The name under `name[...]`, `name.x` and their nests; "" for other expressions."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def index_parts(index: ast.expr) -> list[ast.expr]:
    """What stands in brackets, one expression for each axis."""
    return index.elts if isinstance(index, ast.Tuple) else [index]


def sub_expressions(node: ast.AST) -> list[ast.expr]:
    """The expressions that a node is made of, without those inside them."""
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def is_item(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Whether this is `xs[0]` or `xs["a"]`: of a list or dict it is known which item that is."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)


def is_size(node: ast.AST) -> bool:
    """Whether an expression is `x.shape`, `x.dtype` or a part of one: no element of `x`."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype"):
            return True
        node = node.value
    return False


def names_in(node: ast.AST) -> frozenset[str]:
    """All names that a node uses."""
    return frozenset([one.id for one in walk(node) if isinstance(one, ast.Name)])


class _Replacer(ast.NodeTransformer):
    def __init__(self, change: Callable[[ast.AST], ast.AST | None]) -> None:
        self.change = change

    def visit(self, node: ast.AST) -> Any:
        new = self.change(node)
        return self.generic_visit(node) if new is None else ast.copy_location(new, node)


def replace_nodes(node: N, change: Callable[[ast.AST], ast.AST | None]) -> N:
    """A tree, itself changed, with what `change` gives in place of nodes. None says to look at a node's own parts."""
    replaced: N = _Replacer(change).visit(node)
    return replaced
