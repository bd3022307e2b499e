"""Buffers: memory that an engine may write.

An engine writes gradients into whatever it is given: it adds to an input's, and *zeroes* an
output's after reading it. So it is never given the caller's: output adjoints are private
copies, input adjoints start at zero, and what lands there is handed to torch once. Sizes
were checked earlier; nothing here looks at a spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .._config import config
from .._errors import GradientError, refusal

LARGEST_TAPE = 2**31 - 1
"""Numbers on a tape: engines count elements in 32 bits."""


class Buffer(NamedTuple):
    """One array of a call: its whole shape, batch included, and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


def unread(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Uninitialised memory, which must not be read; poisoned where TINSMITH_POISON asks for it."""
    memory = torch.empty(shape, dtype=dtype, device=device)
    return poison(memory) if config().poison else memory


def poison(memory: torch.Tensor) -> torch.Tensor:
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
    # Torch's ZeroTensor, a cotangent that is known to be zero, has no memory to read; its clone has.
    has_no_memory = cotangent.data_ptr() == 0
    return cotangent.clone() if is_spoiled or has_no_memory else cotangent


def in_order(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors whose memory is in order, element after element; copies where it was not."""
    return [tensor.contiguous().resolve_neg() for tensor in tensors]


class TapeRoom:
    """Makes memory for the tapes of an op."""

    def __init__(self, op: str, device: torch.device) -> None:
        self.op = op
        self.device = device

    def __call__(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A tape of so many numbers. Raises GradientError."""
        self.check(count)
        return unread((count,), dtype, self.device)

    def zeros(self, count: int) -> torch.Tensor:
        """Numbers to count with."""
        self.check(count)
        return torch.zeros(count, dtype=torch.int32, device=self.device)

    def check(self, count: int) -> None:
        """Refuse a tape of more numbers than engines can count."""
        if count > LARGEST_TAPE:
            words = f"the backward pass of op `{self.op}` needs a tape of {count} numbers, more than engines can index"
            remedy = "Split the call: fewer parallel iterations, or shorter loops in each, in one call."
            raise GradientError(refusal(words, [("largest", str(LARGEST_TAPE))], remedy))
