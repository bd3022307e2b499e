"""Find the column of an expression. The IR has lines alone, so the file's text is searched.

Results are a line and a column, both counted from 1, of the first match: on the line that was asked for, else anywhere
in the statement that the line belongs to. Without a match they are that line, and column 0.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from ..codegen import BINARY
from ..engines import column_of, parse_lines
from ..ir import AffineIndex
from ._indices import affine_of
from ._nodes import index_parts, resolve_callee

# A function of the source is lowered to several operations: where the sanitizer reports a `sqrt`, the source may have
# a `norm`.
_CALLS = {
    "norm": ("norm", "normalized", "length", "distance", "normalize"),
    "sqrt": ("sqrt", "norm", "length"),
    "cast": ("cast", "int", "i32", "u32", "i64", "u64", "f32", "f16"),
    "/": ("normalized", "normalize"),
    "raw_div": ("raw_div",),
    "raw_mod": ("raw_mod", "mod"),
    "%": ("mod",),
}

_Node: TypeAlias = ast.expr | ast.AugAssign


class Columns:
    """Finds places in files. Parses each file once."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[int, list[_Node]]] = {}

    def element(
        self,
        path: str,
        line: int,
        array: str,
        *,
        is_read: bool | None = None,
        index: tuple[int, ...] | None = None,
        known: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[int, int]:
        """Return where an array is read (`is_read`) or written, at an index if that is known.

        `known` are the values of loop variables and sizes, as the source writes them.
        """
        own, whole = self._around(path, line)
        subscripts = [[one for one in nodes if isinstance(one, ast.Subscript)] for nodes in (own, whole)]
        mine = [[one for one in some if ast.unparse(one.value) == array] for some in subscripts]
        if index is not None:
            mine = [[one for one in some if _may_be(one.slice, index, known)] for some in mine]
        exact = [[one for one in some if isinstance(one.ctx, ast.Load) == is_read] for some in mine]
        names = [[one for one in nodes if isinstance(one, ast.Name) and one.id == array] for nodes in (own, whole)]
        # A called function has a name of its own for the array: the only subscript of the statement must be it.
        alone = subscripts[1] if len(subscripts[1]) == 1 else []
        return _first(path, line, *exact, *mine, *names, alone)

    def operation(self, path: str, line: int, name: str) -> tuple[int, int]:
        """Return the place of an operation: of its sign, or of the function that is called."""
        for nodes in self._around(path, line):
            operations = [one for one in nodes if _is_operation(one, name)]
            signs = [one for one in operations if isinstance(one, ast.BinOp)]
            if operations:
                return _sign(path, signs[0]) if signs else _place(path, operations[0])
        return line, 0

    def _around(self, path: str, line: int) -> tuple[list[_Node], list[_Node]]:
        """Return the expressions that begin on a line, and all of the statement that the line belongs to."""
        if path not in self._nodes:
            self._nodes[path] = _by_line(path)
        whole = self._nodes[path].get(line, [])
        return [one for one in whole if one.lineno == line], whole


def _by_line(path: str) -> dict[int, list[_Node]]:
    """Return the expressions of a file's statements, in the order of the text, by each line of their statement.

    A loop or a branch counts as the lines of its header.
    """
    nodes_by_line: dict[int, list[_Node]] = {}
    for stmt in ast.walk(parse_lines(linecache.getlines(path))):
        if isinstance(stmt, ast.stmt):
            parts = [part for part in ast.iter_child_nodes(stmt) if isinstance(part, ast.expr)]
            nodes: list[_Node] = [stmt] if isinstance(stmt, ast.AugAssign) else []
            nodes += [one for part in parts for one in ast.walk(part) if isinstance(one, ast.expr)]
            for line in range(stmt.lineno, _end(stmt, parts) + 1):
                nodes_by_line.setdefault(line, []).extend(nodes)
    for nodes in nodes_by_line.values():
        # `ast.walk` goes through a tree level by level, and the first match has to be the leftmost.
        nodes.sort(key=lambda one: (one.lineno, one.col_offset))
    return nodes_by_line


def _end(stmt: ast.stmt, parts: list[ast.expr]) -> int:
    # The statements inside a loop or a branch have lines of their own.
    if any(isinstance(part, ast.stmt) for part in ast.iter_child_nodes(stmt)):
        return max([stmt.lineno, *(part.end_lineno or 0 for part in parts)])
    return stmt.end_lineno or stmt.lineno


def _is_operation(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return BINARY.get(type(node.op)) == name
    if isinstance(node, ast.UnaryOp):
        return name == "neg" and isinstance(node.op, ast.USub)
    return isinstance(node, ast.Call) and resolve_callee(node) in {name, *_CALLS.get(name, ())}


def _may_be(node: ast.expr, index: tuple[int, ...], known: Mapping[str, int]) -> bool:
    """Return False if a subscript cannot have this index, given the known values of names."""
    parts = index_parts(node)
    # A vector indexes several axes.
    if len(parts) != len(index):
        return True
    values = [affine_of(part, _atom).value(known) for part in parts]
    return all(value is None or value == wanted for value, wanted in zip(values, index, strict=True))


def _atom(node: ast.expr) -> AffineIndex:
    return AffineIndex({ast.unparse(node): 1})


def _first(path: str, line: int, *ways: Sequence[_Node]) -> tuple[int, int]:
    for nodes in ways:
        for node in nodes:
            return _place(path, node)
    return line, 0


def _sign(path: str, node: ast.BinOp) -> tuple[int, int]:
    """Return the place of the sign between two operands; that of the expression if they are on different lines."""
    left, right = node.left, node.right
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return _place(path, node)
    # The parser's columns are bytes of UTF-8, not characters.
    between = linecache.getline(path, right.lineno).encode()[left.end_col_offset : right.col_offset].decode()
    # Parentheses do not belong to a node, so that of `(a + b) * c` ends behind its left operand.
    start = left.end_col_offset + len(between) - len(between.lstrip(" )"))
    return right.lineno, column_of(path, right.lineno, start)


def _place(path: str, node: _Node) -> tuple[int, int]:
    return node.lineno, column_of(path, node.lineno, node.col_offset)
