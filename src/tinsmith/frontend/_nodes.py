"""Answer questions about single nodes of a syntax tree: the function called, the array indexed, the names used.

A call goes by the name that the engine has for the function, whatever the source calls it: `_read` resolves calls when
it reads a kernel, and notes the names at the nodes (docs/about/decisions/front-end.md).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from typing import TypeGuard, TypeVar, cast

from ..engines import change_children, list_children, walk

N = TypeVar("N", bound=ast.AST)

_NAME = "tinsmith_name"


def resolve_callee(node: ast.AST) -> str:
    """Return the name of the engine's or Python's function that a call calls: `ndrange`, also under another name.

    "" for a user's function, and for what is not a call. Where the value is not known, as for a method of a local,
    it is the name in the text.
    """
    if not isinstance(node, ast.Call):
        return ""
    name: str | None = getattr(node, _NAME, None)
    if name is not None:
        return name
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def unwrap_call(node: ast.expr, name: str) -> ast.expr:
    """Return the `x` of `static(x)` or `grouped(x)`, given the function's name; return other expressions unchanged."""
    is_meant = isinstance(node, ast.Call) and len(node.args) == 1 and resolve_callee(node) == name
    return node.args[0] if isinstance(node, ast.Call) and is_meant else node


def count_stores(tree: ast.AST) -> Counter[str]:
    """Count the assignments to each name, those by loops included."""
    return Counter(one.id for one in walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def note_name(call: ast.Call, name: str) -> None:
    """Note at a call what `resolve_callee` returns for it and its copies."""
    setattr(call, _NAME, name)


def root(node: ast.AST) -> str:
    """Return the name that `name[...]`, `name.x` and their combinations start from; "" for other expressions."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def index_parts(index: ast.expr) -> list[ast.expr]:
    """Return what stands in brackets, one expression for each part."""
    return index.elts if isinstance(index, ast.Tuple) else [index]


def sub_expressions(node: ast.AST) -> list[ast.expr]:
    """Return the direct sub-expressions of a node."""
    return [child for child in list_children(node) if isinstance(child, ast.expr)]


def is_item(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Return True for `xs[0]` or `xs["a"]`: in a list or dict, an item that is known."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)


def is_size(node: ast.AST) -> bool:
    """Return True for `x.shape`, `x.dtype` or a part of one, which is not an element of `x`."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype"):
            return True
        node = node.value
    return False


def names_in(node: ast.AST) -> frozenset[str]:
    """Return all names in a node."""
    return frozenset([one.id for one in walk(node) if isinstance(one, ast.Name)])


def replace_nodes(node: N, change: Callable[[ast.AST], ast.AST | None]) -> N:
    """Replace nodes of a tree, in place, by what `change` returns; where that is None, go on with the node's parts."""

    def replace(one: ast.AST) -> ast.AST:
        new = change(one)
        if new is not None:
            return ast.copy_location(new, one)
        change_children(one, replace)
        return one

    return cast("N", replace(node))
