"""Memory that a scan allocates once: buffers for states, next to each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..calls import make_zeros

ALIGNED = 64
"""Bytes: addresses of tensors are multiples of that many."""
Move = Callable[[int], None]
"""Gives an array of a launch memory at another address."""


class Record:
    """Several tensors in one piece of memory, so that one call zeroes them all; several such pieces in a row.

    Attributes:
        columns: each tensor, with the pieces as its first dim.
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
        """Where the tensors of a piece are."""
        begin = self._first + piece * self._size
        return [begin + offset for offset in self._offsets[:-1]]

    def tensors(self, piece: int = 0) -> list[Tensor]:
        """The tensors of a piece."""
        return [column[piece] for column in self.columns]

    def clear(self, piece: int = 0) -> None:
        """Zero a piece."""
        self._memory[piece].zero_()


class Rows(NamedTuple):
    """A tensor with time as its first dim: where its rows are."""

    first: int
    stride: int

    @classmethod
    def of(cls, tensor: Tensor) -> Rows:
        """The rows of a contiguous tensor."""
        return cls(tensor.data_ptr(), tensor[0].nbytes if len(tensor) else 0)


class GivenStates:
    """All states of a scan, which somebody else kept, in the places of both ways to keep them."""

    def __init__(self, first: Sequence[Tensor], states: Sequence[Tensor], unroll: int, note: Any) -> None:
        self._first, self._states, self._unroll, self._note = list(first), states, unroll, note
        self._rows = [Rows.of(one) for one in states]

    def addresses(self, piece: int = 0) -> list[int]:
        """Where the state is after step `piece`: for launches."""
        return [first + piece * stride for first, stride in self._rows]

    def take(self, slot: int) -> tuple[list[Tensor], Any]:
        """The state before a stretch of steps, and a note of the random numbers that follow: for a replay."""
        state = [one[slot * self._unroll - 1] for one in self._states] if slot else self._first
        return state, self._note
