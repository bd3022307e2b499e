"""Exact values: those that another kernel computes with the same bits, whatever its compiler makes of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..ir import nodes, types, walk

_MOVES = frozenset({"neg", "abs", "min", "max"})
"""Operations on floats that round nothing."""


class Exact:
    """What is exact in some statements.

    Args:
        body: the statements.
        changed: arrays that they change.
    """

    def __init__(self, body: Sequence[nodes.Stmt], changed: Collection[str]) -> None:
        self._changed = changed
        self._inexact: set[str] = set()
        statements = [*walk.statements(body)]
        before = -1
        while len(self._inexact) > before:
            before = len(self._inexact)
            for one in statements:
                if isinstance(one, nodes.Assign) and not self.has(one.value):
                    self._inexact.add(one.name)
                elif isinstance(one, nodes.Draw | nodes.Decompose | nodes.Atomic):
                    self._inexact.update(walk.find_assigned(one))

    def has(self, expr: nodes.Expr) -> bool:
        """Whether an expression is exact: loads and whole numbers, moved about and chosen, but not calculated with."""
        match expr:
            case nodes.Local(name):
                return name not in self._inexact
            case nodes.Load(array) if array in self._changed:
                return False
            case nodes.Unary() | nodes.Binary() if types.is_float(expr.type) and expr.operator not in _MOVES:
                return False
        return all(self.has(one) for one in walk.operands(expr))
