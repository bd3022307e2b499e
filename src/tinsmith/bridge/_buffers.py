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


def zeros(buffer: Buffer, device: torch.device) -> torch.Tensor:
    """Fresh memory at zero."""
    return torch.zeros(buffer.shape, dtype=buffer.dtype, device=device)


def zeros_maker(buffer: Buffer, device: torch.device) -> Callable[[], torch.Tensor]:
    """What makes memory at zero, again and again: a partial, which costs no Python frame of its own."""
    return functools.partial(torch.zeros_like, _prototype(buffer, device))


def unread_maker(buffer: Buffer, device: torch.device) -> Callable[[], torch.Tensor]:
    """What makes memory whose content nobody may read."""
    if config().poison:
        return functools.partial(unread, buffer, device)
    return functools.partial(torch.empty_like, _prototype(buffer, device))


class Makers:
    """What makes some memory, again and again.

    A prototype pays from the second time on: with sizes that change at every call, the first time is the only one.

    Attributes:
        now: a maker for each buffer; none before the second time.
    """

    def __init__(self, buffers: Sequence[tuple[Buffer, bool]], device: torch.device) -> None:
        """`buffers` are said with whether they start at zero."""
        self._buffers = buffers
        self._device = device
        self._is_first = True
        self.now: tuple[Callable[[], torch.Tensor], ...] = ()

    def find(self) -> Sequence[Callable[[], torch.Tensor]]:
        """The makers for the first time, or from now on."""
        device = self._device
        if self._is_first:
            self._is_first = False
            return [functools.partial(zeros if is_zero else unread, one, device) for one, is_zero in self._buffers]
        self.now = tuple((zeros_maker if is_zero else unread_maker)(one, device) for one, is_zero in self._buffers)
        return self.now


def _prototype(buffer: Buffer, device: torch.device) -> torch.Tensor:
    """A tensor of that shape that holds one element's memory: saying it again costs less than in words."""
    return torch.empty((), dtype=buffer.dtype, device=device).expand(buffer.shape)


def unread(buffer: Buffer, device: torch.device) -> torch.Tensor:
    """Fresh memory whose content nobody may read; poisoned where TINSMITH_POISON asks for it."""
    memory = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)
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


def adjoint_of(cotangent: torch.Tensor | None, buffer: Buffer, device: torch.device, is_spoiled: bool) -> torch.Tensor:
    """An output's adjoint: a private copy, or the cotangent itself where no kernel writes to it."""
    if cotangent is None:
        return zeros(buffer, device)
    if cotangent.is_neg():
        cotangent = cotangent.resolve_neg()
    if not cotangent.is_contiguous():
        return private(cotangent)
    has_no_memory = cotangent.data_ptr() == 0  # one that torch knows to be zero; a copy has
    return cotangent.clone() if is_spoiled or has_no_memory else cotangent


def in_order(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors whose memory is in order, element after element; copies where it was not."""
    return [tensor.contiguous().resolve_neg() for tensor in tensors]
