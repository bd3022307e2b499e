"""Memory that a scan allocates once: contiguous buffers for states."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..calls import make_zeros

ALIGNED = 64
"""The alignment of tensors' addresses in bytes."""
Move = Callable[[int], None]
"""A function that sets the address of an array of a prepared launch."""


class Record:
    """An array of records: each has several tensors in contiguous memory, so that one call zeroes them all.

    Attributes:
        columns: each tensor for all records, with the record ("piece") as its first dim.
    """

    def __init__(self, likes: Sequence[tuple[torch.Size, torch.dtype]], count: int = 1) -> None:
        sizes = [shape.numel() * dtype.itemsize for shape, dtype in likes]
        self._offsets = list(itertools.accumulate([-(-size // ALIGNED) * ALIGNED for size in sizes], initial=0))
        self._size = self._offsets[-1]
        self._memory = make_zeros((count, self._size), torch.uint8)
        self._first = self._memory.data_ptr()
        self.columns = [
            self._memory[:, start : start + size].view(dtype).view(count, *shape)
            for (shape, dtype), start, size in zip(likes, self._offsets, sizes, strict=False)
        ]

    def addresses(self, piece: int = 0) -> list[int]:
        """Return the addresses of the tensors of a record."""
        begin = self._first + piece * self._size
        return [begin + offset for offset in self._offsets[:-1]]

    def tensors(self, piece: int = 0) -> list[Tensor]:
        """Return the tensors of a record."""
        return [column[piece] for column in self.columns]

    def clear(self, piece: int = 0) -> None:
        """Zero the tensors of a record."""
        self._memory[piece].zero_()


class Rows(NamedTuple):
    """The addresses of the rows of a tensor with time as its first dim: that of row 0, and the bytes between rows."""

    first: int
    stride: int

    @classmethod
    def find(cls, tensor: Tensor) -> Rows:
        """Return the address of the first row of a contiguous tensor, and the number of bytes of a row."""
        return cls(tensor.data_ptr(), tensor[0].nbytes if len(tensor) else 0)


class GivenStates:
    """All states of a scan, which a graph passes to the backward pass, with the methods of `Record` and of `Slots`."""

    def __init__(self, first: Sequence[Tensor], states: Sequence[Tensor], unroll: int, note: Any) -> None:
        self._first, self._states, self._unroll, self._note = list(first), states, unroll, note
        self._rows = [Rows.find(one) for one in states]

    def addresses(self, piece: int = 0) -> list[int]:
        """Return the addresses of the state after step number `piece`, as `Record.addresses` does, for launches."""
        return [first + piece * stride for first, stride in self._rows]

    def take(self, slot: int) -> tuple[list[Tensor], Any]:
        """Return the state before a stretch of steps, and a note of the random generators, as `Slots.take` does."""
        state = [one[slot * self._unroll - 1] for one in self._states] if slot else self._first
        return state, self._note
