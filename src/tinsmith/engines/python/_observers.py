"""Watching: a run that reports every access to memory, or that continues after errors and reports what it computes.

Off unless somebody is given to notify. A `Recorder` is told which iteration of which loop touched which element, and on
which line. A `Watch` is notified of an index out of range (what is loaded is then 0, what is stored is
left out), of a division by zero (the result is then 0), and of the operands and the result of every operation, with
its line. Whether an overflow or a NaN is a mistake is for the watch to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

import torch

Number: TypeAlias = "int | torch.Tensor"
"""A number as observers see it: a float as a 0-d tensor, an integer or a truth as Python's."""

How: TypeAlias = Literal["read", "write", "atomic"]


class Recorder(Protocol):
    """Receives accesses."""

    def enter(self, task: int, iteration: tuple[int, ...] = ()) -> None:
        """What follows belongs to this iteration."""

    def add(
        self, how: How, array: str, position: int, line: int, operator: str = "", value: Number | None = None
    ) -> None:
        """An access of the present iteration; `operator` is an atomic's, `value` what is written or combined."""


class Watch:
    """Receives what happens in a run. Each method does nothing, until a subclass has its own."""

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
