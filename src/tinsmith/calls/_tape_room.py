"""Tape room: memory for the tapes of a task, and the part of a pass that allocates it.

The length of a tape is a formula in the call's sizes, or is counted by a kernel that the pass launches before. Launches
and formulas are written by the executor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from .. import tracing
from .._errors import GradientError, refusal
from ..engines import DTYPES, MOST_ELEMENTS, has_streams
from ..ir import nodes
from ..passes.adjoint import TapeSize
from ._buffers import allocate_unread
from ._pass_text import PassText
from ._routine import RoutineLaunch, Tapes


class TapeRoom:
    """Allocates memory for the tapes of an op."""

    def __init__(self, op: str, device: torch.device) -> None:
        self.op = op
        self.device = device

    def __call__(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Allocate a tape with this number of elements. Raise GradientError if engines cannot index so many."""
        self.check(count)
        return allocate_unread((count,), dtype, self.device)

    def zeros(self, count: int) -> torch.Tensor:
        """Return int32 zeros for kernels to count with. Raise GradientError if engines cannot index so many."""
        self.check(count)
        return torch.zeros(count, dtype=torch.int32, device=self.device)

    def check(self, count: int) -> None:
        """Raise GradientError for a tape with more elements than engines can index."""
        if count > MOST_ELEMENTS:
            words = f"the backward pass of op `{self.op}` needs a tape of {count} numbers, more than engines can index"
            remedy = "Split the call: fewer parallel iterations, or shorter loops in each, in one call."
            raise GradientError(refusal(words, [("at most", str(MOST_ELEMENTS))], remedy))


class _Tape(NamedTuple):
    """A tape: its array, the variable of its length, and its dtype."""

    array: str
    length: str
    dtype: torch.dtype


class TapeReservation:
    """Writes the part of a pass that allocates a task's tapes.

    Args:
        text: the pass.
        room: allocates the memory.
        tapes: the tapes of the task.
        launch: adds a launch to the pass.
        formula: returns the code of a formula in the sizes and scalars of a call.
        limit: bytes of tape, of the whole pass, above which the pass stops and returns their number; None for no limit.
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
        self._op, self._device = room.op, room.device

    def write(self) -> dict[str, str]:
        """Write the code. Return, by kernel argument, the variables that hold the depths of tapes."""
        iterations = self._count_iterations()
        depths: dict[TapeSize, str] = {}
        arguments: dict[str, str] = {}
        for size in self._tapes.sizes:
            if size.depth:
                # Several tapes may have "" here: of what a forward pass keeps, the kernels compute the depth.
                argument, formula = size.depth
                depths[size] = arguments[argument] = self._text.fresh("depth")
                self._text.add(f"{depths[size]} = {self._formula(formula, self._tapes)}")
        entries = {size: depth if size.is_whole else f"{iterations} * {depth}" for size, depth in depths.items()}
        if self._tapes.counts_entries is not None:
            entries |= self._count_entries(self._tapes.counts_entries, iterations)
        self._allocate(self._measure(entries))
        return arguments

    def _count_iterations(self) -> str:
        """Write the code that counts the parallel iterations. Return the variable of their number."""
        iterations = self._text.fresh("iterations")
        if isinstance(self._tapes.iterations, nodes.Expr):
            self._text.add(f"{iterations} = {self._formula(self._tapes.iterations, self._tapes)}")
        else:
            self._refuse_capture()
            self._text.put(self._tapes.total, f"{self._room}.zeros(1).reshape(())", (), torch.int32)
            self._launch(self._tapes.iterations)
            self._text.add(f"{iterations} = int({self._text.memory(self._tapes.total)})")
        return iterations

    def _refuse_capture(self) -> None:
        """Write the check that no CUDA graph is being captured, where the pass reads what a kernel counted."""
        if has_streams(self._device.type):
            because = "the length of its tapes depends on data, and is read from the device"
            remedy = "Give the kernel's loop a bound that does not depend on data, or leave the op out."
            check = partial(
                tracing.refuse_capture, f"the backward pass of op `{self._op}`", self._device, because, remedy
            )
            self._text.add(f"{self._text.bind(check, 'refuse_capture')}()")

    def _count_entries(self, launch: RoutineLaunch, iterations: str) -> dict[TapeSize, str]:
        """Write the launch that counts entries of tapes without a formula. Return the variables of their numbers."""
        self._refuse_capture()
        counted = [(size, *size.starts) for size in self._tapes.sizes if size.starts is not None]
        for _, _, counts in counted:
            self._text.put(counts, f"{self._room}.zeros({iterations})", (iterations,), torch.int32)
        self._launch(launch)
        entries = {}
        for size, starts, counts in counted:
            entries[size], begins = self._text.fresh("entries"), self._text.fresh("starts")
            together = f"{self._text.bind(_find_starts, 'find_starts')}({self._text.memory(counts)})"
            self._text.add(f"{begins}, {entries[size]} = {together}")
            self._text.put(starts, begins, (iterations,), torch.int32)
        return entries

    def _measure(self, entries: dict[TapeSize, str]) -> list[_Tape]:
        """Write the code of each tape's length. Return the tapes with the variables of their lengths."""
        measured = []
        for size in self._tapes.sizes:
            for name, kind, width in size.arrays:
                measured.append(_Tape(name, self._text.fresh("length"), DTYPES[kind]))
                self._text.add(f"{measured[-1].length} = {entries[size]} * {width}")
        return measured

    def _allocate(self, measured: list[_Tape]) -> None:
        """Write the code that allocates the tapes, and stops the pass if they exceed the limit."""
        if self._limit is not None:
            sums = " + ".join(f"{dtype.itemsize} * {length}" for _, length, dtype in measured)
            self._text.add(f"taped += {sums}")
            self._text.add(f"if taped > {self._limit}: return taped")
        for name, length, dtype in measured:
            made = f"{self._room}({length}, {self._text.bind(dtype, 'dtype')})"
            self._text.put(name, made, (length,), dtype)


def _find_starts(counts: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return where the entries of each iteration start if they are stored one after another, and their total number."""
    if counts.device.type != "cpu":
        ends = counts.cumsum(0)
        return (ends - counts).int(), int(ends[-1]) if len(ends) else 0
    # 4 us for a short array, where torch's operations take 15.
    array = counts.numpy().astype(np.int64)
    ends = array.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    return torch.from_numpy((ends - array).astype(np.int32)), total
