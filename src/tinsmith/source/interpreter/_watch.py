"""Watching: a run that continues after errors, and reports every value that it computes.

Off unless a `Watch` is given. It is notified of an index out of range (what is loaded is then 0, what is stored is
left out), of a division by zero (the result is then 0), and of the operands and the result of every operation, with
its line. Whether an overflow or a NaN is a mistake is for the watch to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..ir import nodes, walk
from ._casts import Number


class Watch(Protocol):
    """Receives what happens in a run."""

    def on_begin(self, held: Mapping[str, Any]) -> None:
        """A run begins. `held` are its locals, loop variables among them, as they change."""

    def on_statement(self, operations: int, line: int) -> None:
        """A statement on a line is run that takes so many operations. May raise, to end the run."""

    def on_while_turn(self, line: int, turn: int) -> None:
        """A `while` begins another turn, counted from 0 each time that the loop is entered."""

    def on_index_out_of_range(self, array: str, index: tuple[int, ...], line: int, *, is_read: bool) -> None:
        """An index is not in its array."""

    def on_division_by_zero(self, operator: str, left: int, line: int) -> None:
        """An integer is divided by zero."""

    def on_result(self, operator: str, kind: str, operands: tuple[Number, ...], result: Number, line: int) -> None:
        """An operation on numbers, cast to `kind` already, gave a result of `kind`; of a "cast" they are not yet."""


class Missing(Exception):
    """An index out of range, of which the watch was notified."""


def watch_results(watch: Watch, operator: str, kind: str, line: int, rule: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that tells of its result."""
    computed = watch.on_result

    def compute_and_report(*operands: Number) -> Number:
        result = rule(*operands)
        computed(operator, kind, operands, result, line)
        return result

    return compute_and_report


def cost(stmt: nodes.Stmt) -> int:
    """Operations that a statement takes itself, without the statements inside it."""
    return 1 + sum(not isinstance(one, nodes.Leaf) for one in walk.parts(*walk.expressions(stmt)))
