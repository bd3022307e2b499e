"""Observers of a run: a recorder of memory accesses, and a watch that is notified of results and errors.

They are off unless an observer is passed. A `Recorder` is notified of which iteration of which loop accesses which
element, on which line. A `Watch` is notified of an index out of range (a load then yields 0, a store does nothing),
of a division by zero (the result is then 0), and of the operands and the result of every operation, with its line. It
is up to the watch whether an overflow or a NaN is a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

import torch

Number: TypeAlias = "int | torch.Tensor"
"""A number as observers get it: a float as a 0-d tensor, an integer or bool as a Python integer."""

How: TypeAlias = Literal["read", "write", "atomic"]


class Recorder(Protocol):
    """Receives notifications of memory accesses."""

    def enter(self, task: int, iteration: tuple[int, ...] = ()) -> None:
        """Note that the following accesses belong to this iteration of this top-level loop (`task`)."""

    def add(
        self, how: How, array: str, position: int, line: int, operator: str = "", value: Number | None = None
    ) -> None:
        """Note an access of the current iteration.

        `operator` is that of an atomic operation; `value` is the number that is written or combined.
        """


class Watch:
    """Receives notifications of a run. Each method does nothing unless a subclass overrides it."""

    def on_begin(self, held: Mapping[str, Any]) -> None:
        """Handle the beginning of a run. `held` holds the loop variables, and changes as they do."""

    def on_statement(self, operations: int, line: int) -> None:
        """Handle a statement on a line that executes this many operations. May raise to end the run."""

    def on_while_turn(self, line: int, turn: int) -> None:
        """Handle the start of iteration `turn` of a `while` loop, counted from 0 each time that the loop is entered."""

    def on_index_out_of_range(self, array: str, index: tuple[int, ...], line: int, *, is_read: bool) -> None:
        """Handle an index that is out of range for its array."""

    def on_division_by_zero(self, operator: str, left: int, line: int) -> None:
        """Handle an integer division by zero."""

    def on_result(self, operator: str, kind: str, operands: tuple[Number, ...], result: Number, line: int) -> None:
        """Handle the result, of type `kind`, of an operation on numbers.

        The operands have been converted to `kind`, except those of the operator "cast".
        """
