"""Tape room: memory for the tapes of a task, and the part of a pass that asks for it.

How long a tape is follows from the call's sizes by a formula, or is counted by a kernel that the pass launches before.
Launches and formulas are the executor's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from .._errors import GradientError, refusal
from ..engines import DTYPES, MOST_ELEMENTS
from ..ir import nodes
from ..passes.adjoint import TapeSize
from ._buffers import unread
from ._pass_text import PassText
from ._routine import RoutineLaunch, Tapes


class TapeRoom:
    """Makes memory for the tapes of an op."""

    def __init__(self, op: str, device: torch.device) -> None:
        self.op = op
        self.device = device

    def __call__(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Allocate a tape with this number of elements. Raises GradientError."""
        self.check(count)
        return unread((count,), dtype, self.device)

    def zeros(self, count: int) -> torch.Tensor:
        """Numbers to count with."""
        self.check(count)
        return torch.zeros(count, dtype=torch.int32, device=self.device)

    def check(self, count: int) -> None:
        """Refuse a tape with more elements than engines can count."""
        if count > MOST_ELEMENTS:
            words = f"the backward pass of op `{self.op}` needs a tape of {count} numbers, more than engines can index"
            remedy = "Split the call: fewer parallel iterations, or shorter loops in each, in one call."
            raise GradientError(refusal(words, [("largest", str(MOST_ELEMENTS))], remedy))


class _Tape(NamedTuple):
    """A tape's array, the variable of its length, and its dtype."""

    array: str
    length: str
    dtype: torch.dtype


class TapeReservation:
    """The part of a pass that makes room for a task's tapes.

    Args:
        text: the pass.
        room: makes the memory.
        tapes: those of the task.
        launch: adds a launch to the pass.
        formula: the text of an integer that the sizes and scalars of a call tell.
        limit: bytes of tape, of the whole pass, above which it returns their number instead; None for no limit.
    """

    def __init__(
        self,
        text: PassText,
        room: TapeRoom,
        tapes: Tapes,
        launch: Callable[[RoutineLaunch], None],
        formula: Callable[[nodes.Expr, Tapes], str],
        limit: int | None,
    ) -> None:
        self._text, self._tapes, self._limit = text, tapes, limit
        self._launch, self._formula = launch, formula
        self._room = text.bind(room, "room")

    def write(self) -> dict[str, str]:
        """Add the code. Returns the variables of the arguments that tell kernels how deep tapes are, by argument."""
        iterations = self._count_iterations()
        depths: dict[TapeSize, str] = {}
        arguments: dict[str, str] = {}
        for size in self._tapes.sizes:
            if size.depth:
                # Several tapes may have "" here: of what a forward pass keeps, the kernels compute the depth.
                argument, formula = size.depth
                depths[size] = arguments[argument] = self._text.fresh("depth")
                self._text.add(f"{depths[size]} = {self._formula(formula, self._tapes)}")
        entries = {size: f"{iterations} * {depth}" for size, depth in depths.items()}
        if self._tapes.counts_entries is not None:
            entries |= self._count_entries(self._tapes.counts_entries, iterations)
        self._allocate(self._measure(entries))
        return arguments

    def _count_iterations(self) -> str:
        """The variable of the number of parallel iterations."""
        iterations = self._text.fresh("iterations")
        if isinstance(self._tapes.iterations, nodes.Expr):
            self._text.add(f"{iterations} = {self._formula(self._tapes.iterations, self._tapes)}")
        else:
            self._text.put(self._tapes.total, f"{self._room}.zeros(1).reshape(())", (), torch.int32)
            self._launch(self._tapes.iterations)
            self._text.add(f"{iterations} = int({self._text.memory(self._tapes.total)})")
        return iterations

    def _count_entries(self, launch: RoutineLaunch, iterations: str) -> dict[TapeSize, str]:
        """Variables of the numbers of entries that a kernel has to count."""
        counted = [(size, *size.starts) for size in self._tapes.sizes if size.starts is not None]
        for _, _, counts in counted:
            self._text.put(counts, f"{self._room}.zeros({iterations})", (iterations,), torch.int32)
        self._launch(launch)
        entries = {}
        for size, starts, counts in counted:
            entries[size], begins = self._text.fresh("entries"), self._text.fresh("starts")
            together = f"{self._text.bind(_end_to_end, 'end_to_end')}({self._text.memory(counts)})"
            self._text.add(f"{begins}, {entries[size]} = {together}")
            self._text.put(starts, begins, (iterations,), torch.int32)
        return entries

    def _measure(self, entries: dict[TapeSize, str]) -> list[_Tape]:
        """The tapes with variables of their lengths."""
        measured = []
        for size in self._tapes.sizes:
            for name, kind, width in size.arrays:
                measured.append(_Tape(name, self._text.fresh("length"), DTYPES[kind]))
                self._text.add(f"{measured[-1].length} = {entries[size]} * {width}")
        return measured

    def _allocate(self, measured: list[_Tape]) -> None:
        """Make the memory, if the pass may take so much."""
        if self._limit is not None:
            sums = " + ".join(f"{dtype.itemsize} * {length}" for _, length, dtype in measured)
            self._text.add(f"taped += {sums}")
            self._text.add(f"if taped > {self._limit}: return taped")
        for name, length, dtype in measured:
            made = f"{self._room}({length}, {self._text.bind(dtype, 'dtype')})"
            self._text.put(name, made, (length,), dtype)


def _end_to_end(counts: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Where the entries of each iteration begin that lie one after the other, and how many there are."""
    ends = counts.cumsum(0)
    return (ends - counts).int(), int(ends[-1]) if len(ends) else 0
