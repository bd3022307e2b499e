"""Cuts: statements that assign a float to an integer variable without a cast.

The IR has one cast for what a person wrote, `int(x)`, and for what an engine does by itself, so the file's own text is
asked. A statement that calls what is not known to keep floats may have meant it: of that nothing is said.
"""

from __future__ import annotations

import ast
import linecache
from typing import NamedTuple

from ..engines import column_of, parse_lines
from ..frontend import changes_of, resolve_callee

_KEEP = frozenset(
    {"abs", "acos", "asin", "atan2", "cos", "dot", "exp", "length", "log", "max", "min", "norm", "pow", "sin", "sqrt"}
    | {"atomic_add", "atomic_max", "atomic_min", "atomic_mul", "atomic_sub", "random", "rsqrt", "select", "tan", "tanh"}
)
"""Functions that make no integer of a float, and those that add to a variable."""


class Cut(NamedTuple):
    """The variable that a statement changes, as the text has it, and where it stands."""

    target: str
    line: int
    column: int


class Cuts:
    """Statements by file and line, each file parsed once."""

    def __init__(self) -> None:
        self._by_path: dict[str, dict[int, Cut]] = {}

    def at(self, path: str, line: int) -> Cut | None:
        """What a statement changes in which no cast is written."""
        if path not in self._by_path:
            self._by_path[path] = _cuts(path)
        return self._by_path[path].get(line)


def _cuts(path: str) -> dict[int, Cut]:
    cuts: dict[int, Cut] = {}
    for stmt in ast.walk(parse_lines(linecache.getlines(path))):
        target = _find_changed_target(stmt)
        if isinstance(stmt, ast.stmt) and target is not None and all(map(_keeps_floats, ast.walk(stmt))):
            column = column_of(path, target.lineno, target.col_offset)
            cut = Cut(ast.unparse(target), target.lineno, column)
            cuts |= dict.fromkeys(range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1), cut)
    return cuts


def _find_changed_target(stmt: ast.AST) -> ast.expr | None:
    """The one location that a statement changes; none where the type of what it is given is written out."""
    changes = [] if isinstance(stmt, ast.AnnAssign) else changes_of(stmt.value if isinstance(stmt, ast.Expr) else stmt)
    return changes[0].target if len(changes) == 1 else None


def _keeps_floats(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return not isinstance(node, ast.NamedExpr)  # `:=` changes a variable of its own
    return resolve_callee(node) in _KEEP
