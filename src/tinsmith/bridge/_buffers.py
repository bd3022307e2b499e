"""Buffers: memory that an engine may write.

An engine writes gradients into whatever it is given: it adds to an input's, and *zeroes* an
output's after reading it. So it is never given the caller's: output adjoints are private
copies, input adjoints start at zero, and what lands there is handed to torch once. Sizes
were checked earlier; nothing here looks at a spec.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from .._config import config


class Buffer(NamedTuple):
    """One array of a call: its whole shape, batch included, and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


class Makers:
    """What makes some memory, again and again.

    A prototype pays from the second time on: with sizes that change at every call, the first time is the only one.

    Attributes:
        now: a maker for each; none before the second time.
    """

    def __init__(
        self, shapes: Sequence[Sequence[int]], kinds: Sequence[tuple[torch.dtype, bool]], device: torch.device
    ) -> None:
        """`kinds` are dtypes, and whether memory starts at zero."""
        self._shapes = shapes
        self._kinds = kinds
        self._device = device
        self._is_first = True
        self.now: tuple[Callable[[], torch.Tensor], ...] = ()

    def make(self) -> list[torch.Tensor]:
        """Make all, for the first time or the second."""
        device, pairs = self._device, zip(self._shapes, self._kinds, strict=True)
        if self._is_first:
            self._is_first = False
            return [
                torch.zeros(shape, dtype=dtype, device=device) if is_zero else unread(shape, dtype, device)
                for shape, (dtype, is_zero) in pairs
            ]
        self.now = tuple(
            [
                _maker(torch.empty((), dtype=dtype, device=device).expand(shape), is_zero)
                for shape, (dtype, is_zero) in pairs
            ]
        )
        return [make() for make in self.now]


def _maker(prototype: torch.Tensor, is_zero: bool) -> Callable[[], torch.Tensor]:
    """What makes memory like a tensor that holds one element's: saying it again costs less than in words."""
    if is_zero:
        return functools.partial(torch.zeros_like, prototype)
    if config().poison:
        return lambda: poisoned(torch.empty_like(prototype))
    return functools.partial(torch.empty_like, prototype)


def unread(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Fresh memory whose content nobody may read; poisoned where TINSMITH_POISON asks for it."""
    memory = torch.empty(shape, dtype=dtype, device=device)
    return poisoned(memory) if config().poison else memory


def poisoned(memory: torch.Tensor) -> torch.Tensor:
    """Fill with what is noticed when it is read: NaN, or the largest integer."""
    if memory.dtype == torch.bool:
        return memory.fill_(True)
    is_float = memory.dtype.is_floating_point
    return memory.fill_(float("nan") if is_float else torch.iinfo(memory.dtype).max)


def private(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy that is ours to spoil. An expanded gradient becomes whole memory."""
    return tensor.clone(memory_format=torch.contiguous_format)


def adjoint_of(cotangent: torch.Tensor, is_spoiled: bool) -> torch.Tensor:
    """An output's adjoint: a private copy, or the cotangent itself where no kernel writes to it."""
    if cotangent.is_neg():
        cotangent = cotangent.resolve_neg()
    if not cotangent.is_contiguous():
        return private(cotangent)
    has_no_memory = cotangent.data_ptr() == 0  # one that torch knows to be zero; a copy has
    return cotangent.clone() if is_spoiled or has_no_memory else cotangent


def in_order(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors whose memory is in order, element after element; copies where it was not."""
    return [tensor.contiguous().resolve_neg() for tensor in tensors]
