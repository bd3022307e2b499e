"""Which fields a kernel's body reads and which it writes, by the text it names them with: `x`, `self.x`, `xs[0]`.

The text does not tell whether `x[0]` is an element of a field or a field in a list: it counts as both, and whoever
knows the values asks for the right one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ._effects import Change, changes_of
from ._nodes import is_item
from ._walk import walk


class FieldUses(NamedTuple):
    """`written`: names that are stored to, and where. `read`: names whose elements are read.

    `whole`: names that are passed on whole, to a function: what becomes of them is not followed.
    `replaced`: names of `written` that are given other values than sums of the old one and something.
    """

    written: dict[str, ast.AST]
    read: set[str]
    whole: set[str]
    replaced: set[str]


def field_uses(tree: ast.FunctionDef) -> FieldUses:
    """Uses of everything that has a name in a body; whoever knows which names are fields picks those.

    `x[i] += v` reads nothing that a gradient needs.
    """
    uses = FieldUses({}, set(), set(), set())
    for statement in tree.body:
        _visit(statement, uses)
    return uses


def _visit(node: ast.AST, uses: FieldUses) -> None:
    if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
        _store(node, uses)
        return
    if isinstance(node, ast.Assign | ast.AugAssign):
        changes = changes_of(node)
        for value in {one.value for one in changes if one.value is not None}:
            _visit(value, uses)
        for one in changes:
            uses.read.update(_names(one.target) if one.is_plain and one.kind == "add" else ())
            _change(one, uses)
        return
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return  # sizes are not elements
    if isinstance(node, ast.Subscript) and _name(node.value):
        uses.read.add(_name(node.value))
        uses.whole.update(_stems(_name(node)))
        _visit(node.slice, uses)
        return
    if isinstance(node, ast.For):
        _loop(node, uses)
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        _call(node.value, uses, is_used=False)
        return
    if isinstance(node, ast.Call):
        _call(node, uses)
        return
    name = _name(node)
    if name:
        uses.whole.update(_stems(name))
        uses.read.update(_fields_before_items(node))
        return
    for child in ast.iter_child_nodes(node):
        _visit(child, uses)


def _change(change: Change, uses: FieldUses) -> None:
    if isinstance(change.target, ast.Subscript | ast.Attribute):
        _store(change.target, uses, is_sum=change.kind == "add")
    elif change.is_plain:
        _visit(change.target, uses)


def _store(target: ast.expr, uses: FieldUses, *, is_sum: bool = False) -> None:
    """`x[i] = ...`, `x[i][0] = ...`, `x[i].y = ...`: the name before the innermost bracket; indices are read."""
    node: ast.AST = target
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Subscript):
            _visit(node.slice, uses)
            if name := _name(node.value):
                uses.written.setdefault(name, target)
                uses.replaced.update(() if is_sum else (name,))
                return
        node = node.value


def _loop(loop: ast.For, uses: FieldUses) -> None:
    """A loop over a field reads its indices alone."""
    inner = [loop.iter]
    if isinstance(loop.iter, ast.Call):
        inner = [argument for argument in loop.iter.args if not _name(argument)]
    for node in (*inner, *loop.body, *loop.orelse):
        if not (node is loop.iter and _name(node)):
            _visit(node, uses)


def _call(call: ast.Call, uses: FieldUses, *, is_used: bool = True) -> None:
    changes = [one for one in changes_of(call) if isinstance(one.target, ast.Subscript | ast.Attribute)]
    targets = [one.target for one in changes]
    if isinstance(call.func, ast.Attribute) and not _name(call.func) and call.func.value not in targets:
        _visit(call.func.value, uses)  # `x[i].norm()`
    for one in changes:
        if is_used or one.reads:
            uses.read.update(_names(one.target))  # it returns the old value, or compares it
        _change(one, uses)
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        if argument not in targets:
            _visit(argument, uses)


def _stems(name: str) -> list[str]:
    """`self.x.grad`: every name that may be the field's, from the first part to the whole chain.

    Of a chain with items, only the whole one: what stands before `[0]` is a list, or a field that hands on an element.
    """
    if not name or "[" in name:
        return [name] if name else []
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _fields_before_items(node: ast.AST) -> Iterator[str]:
    """`p` of `p[0].a`: what an item is taken of."""
    return (_name(child.value) for child in walk(node) if is_item(child))


def _names(node: ast.AST) -> Iterator[str]:
    return (name for child in walk(node) if (name := _name(child)))


def _name(node: ast.AST) -> str:
    """`x`, `self.x` or `xs[0]`; "" for anything that is not a chain of names and known items."""
    inner = node
    while isinstance(inner, ast.Attribute) or is_item(inner):
        inner = inner.value
    return ast.unparse(node) if isinstance(inner, ast.Name) else ""
