"""Columns: where on its line something stands. The IR knows lines alone, so the file's own text is asked.

The answer is the column, counted from 1, of what fits first; 0 where nothing does.
"""

from __future__ import annotations

import ast
import linecache
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_SIGNS: dict[str, tuple[type[ast.operator], ...]] = {
    "+": (ast.Add,),
    "-": (ast.Sub,),
    "*": (ast.Mult,),
    "/": (ast.Div,),
    "//": (ast.FloorDiv,),
    "%": (ast.Mod,),
    "pow": (ast.Pow,),
    "<<": (ast.LShift,),
}
_CALLS = {
    "norm": ("norm", "normalized", "length", "distance", "normalize"),
    "sqrt": ("sqrt", "norm", "length"),
    "cast": ("cast", "int", "i32", "u32", "i64", "u64", "f32", "f16"),
    "/": ("normalized", "normalize"),
    "raw_div": ("raw_div",),
    "raw_mod": ("raw_mod", "mod"),
    "%": ("mod",),
}
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class Columns:
    """Columns in files, each parsed once."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[int, list[ast.AST]]] = {}

    def element(
        self,
        path: str,
        line: int,
        array: str,
        *,
        is_read: bool | None = None,
        index: tuple[int, ...] | None = None,
        variables: Mapping[str, int] | None = None,
        sizes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> int:
        """Where a line touches an array: reads it (`is_read`) or writes it, at an index where that can be told."""
        subscripts = [one for one in self._on(path, line) if isinstance(one, ast.Subscript)]
        names = [one for one in self._on(path, line) if isinstance(one, ast.Name) and one.id == array]
        mine = [one for one in subscripts if ast.unparse(one.value) == array]
        if not mine and not names and len(subscripts) == 1:  # a function's own name for it
            mine = subscripts
        mine = [one for one in mine if is_read is None or isinstance(one.ctx, ast.Load) == is_read] or mine
        if index is not None:
            known = {"variables": variables or {}, "sizes": sizes or {}}
            mine = [one for one in mine if _may_be(one.slice, index, **known)]
        return _first(path, mine or names)

    def operation(self, path: str, line: int, name: str) -> int:
        """Where a line has an operation: its sign, or the name of its function."""
        found = [one for one in self._on(path, line) if _is_operation(one, name)]
        for node in found:
            if isinstance(node, ast.BinOp):
                return _sign(path, node)
        return _first(path, found)

    def _on(self, path: str, line: int) -> list[ast.AST]:
        """What begins on a line, from left to right."""
        if path not in self._nodes:
            self._nodes[path] = _by_line(path)
        return self._nodes[path].get(line, [])


def _by_line(path: str) -> dict[int, list[ast.AST]]:
    found: dict[int, list[ast.AST]] = {}
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:  # a notebook's cell with a magic line: lines alone, then
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.AugAssign):
            found.setdefault(node.lineno, []).append(node)
    for nodes in found.values():
        nodes.sort(key=lambda one: getattr(one, "col_offset", 0))
    return found


def _is_operation(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, _SIGNS.get(name, ()))
    if isinstance(node, ast.UnaryOp):
        return name == "neg" and isinstance(node.op, ast.USub)
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in {name, *_CALLS.get(name, ())}
    return False


def _may_be(node: ast.expr, index: tuple[int, ...], **known: Any) -> bool:
    """Whether a subscript can have meant this index; one that is not understood can."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    if len(parts) != len(index):
        return True
    values = [_value(part, **known) for part in parts]
    return all(value is None or value == wanted for value, wanted in zip(values, index, strict=True))


def _value(node: ast.expr, variables: Mapping[str, int], sizes: Mapping[str, tuple[int, ...]]) -> int | None:
    """The value of an index, of loop variables, sizes and integers; None where there is more in it."""
    match node:
        case ast.Constant(int(value)):
            return value
        case ast.Name(name):
            return variables.get(name)
        case ast.UnaryOp(ast.USub(), operand):
            value = _value(operand, variables, sizes)
            return None if value is None else -value
        case ast.BinOp(left, sign, right):
            values = _value(left, variables, sizes), _value(right, variables, sizes)
            rule = _ARITHMETIC.get(type(sign))
            return None if None in values or rule is None else rule(*values)  # type: ignore[arg-type]
        case ast.Subscript(ast.Attribute(array, "shape"), ast.Constant(int(axis))):
            shape = sizes.get(ast.unparse(array), ())
            return shape[axis] if axis < len(shape) else None
        case _:
            return None


def _first(path: str, nodes: Iterable[ast.AST]) -> int:
    for node in nodes:
        return _column(path, getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    return 0


def _sign(path: str, node: ast.BinOp) -> int:
    """The sign between two operands, where both stand on one line."""
    left, right = node.left, node.right
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return _first(path, [node])
    between = linecache.getline(path, right.lineno).encode()[left.end_col_offset : right.col_offset].decode()
    start = left.end_col_offset + len(between) - len(between.lstrip(" )"))
    return _column(path, right.lineno, start)


def _column(path: str, line: int, offset: int) -> int:
    """The parser counts bytes, people characters."""
    return len(linecache.getline(path, line).encode()[:offset].decode(errors="replace")) + 1
