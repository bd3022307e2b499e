"""Exact values: those that another kernel computes with the same bits, however its compiler reorders arithmetic.

Both engines compile with fast arithmetic: a compiler may round `a * b + c` in one way in one loop, and in another way
in another. So arithmetic on floats is not exact, but a move, a choice or an integer is.

    x[i], -x[i], max(x[i], y[i]), i + 1       exact
    x[i] * 2.0, exp(x[i])                     not exact
"""

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
        # A loop hands values back to statements above, so all are read until nothing is new.
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
        """Return True if an expression is exact: loads and integers, negated and chosen, but no rounded arithmetic."""
        match expr:
            case nodes.Local(name):
                return name not in self._inexact
            # Another run may find another value there.
            case nodes.Load(array) if array in self._changed:
                return False
            case nodes.Unary() | nodes.Binary() if types.is_float(expr.type) and expr.operator not in _MOVES:
                return False
        return all(self.has(one) for one in walk.operands(expr))
