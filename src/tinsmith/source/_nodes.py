"""What nodes of a syntax tree say by themselves: whom they call, whose element they are, which names they use.

A call is known by the name that an engine gives to the function, whatever the source calls it: `_read` resolves
names when it reads a kernel, and notes what it finds at the calls.
"""

from __future__ import annotations

import ast
from typing import TypeGuard

from ._walk import walk

_NAME = "tinsmith_name"


def called(node: ast.AST) -> str:
    """The name of the engine's or Python's function that a call calls: `ndrange`, for `nd(...)` too where `nd` is that.

    "" for a user's function, and for what is no call. Where nothing tells what is called, as in a method of a
    local, the name that stands there.
    """
    if not isinstance(node, ast.Call):
        return ""
    name: str | None = getattr(node, _NAME, None)
    if name is not None:
        return name
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def note_name(call: ast.Call, name: str) -> None:
    """Note at a call what `called` is to say; a copy of the call says so too."""
    setattr(call, _NAME, name)


def is_static(loop: ast.AST) -> TypeGuard[ast.For]:
    """Whether it is a loop over `ti.static(...)`, which is unrolled."""
    return isinstance(loop, ast.For) and called(loop.iter) == "static"


def is_setting(statement: ast.stmt) -> bool:
    """Whether a statement is a setting of the loop that follows (`ti.loop_config(...)`)."""
    return isinstance(statement, ast.Expr) and called(statement.value) in ("loop_config", "block_local")


def is_serialized(statement: ast.stmt) -> bool:
    """Whether a setting makes the loop that follows run in order (`ti.loop_config(serialize=True)`)."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    given = [keyword.value for keyword in statement.value.keywords if keyword.arg == "serialize"]
    # A value that is no constant counts as true: a batch whose samples run in order is right either way.
    is_setting_off = any(isinstance(value, ast.Constant) and not value.value for value in given)
    return called(statement.value) == "loop_config" and bool(given) and not is_setting_off


def iterated(loop: ast.For) -> ast.expr:
    """What a loop runs over, without the `ti.static(...)` around it."""
    return loop.iter.args[0] if isinstance(loop.iter, ast.Call) and called(loop.iter) == "static" else loop.iter


def root(node: ast.AST) -> str:
    """The name under `name[...]`, `name.x` and their nests; "" for other expressions."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def names_in(node: ast.AST) -> frozenset[str]:
    """All names that a node uses."""
    return frozenset([one.id for one in walk(node) if isinstance(one, ast.Name)])
