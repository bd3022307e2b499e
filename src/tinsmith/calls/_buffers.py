"""Buffers: memory that an engine may write.

An engine writes to every gradient that it gets: it adds to that of an input, and *zeroes* that of an
output after reading it. So it never gets the caller's: output adjoints are private
copies, input adjoints start at zero, and the result is returned to torch once. Sizes
were checked earlier; this file does not know the spec.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from .._config import config
from .._errors import DeviceError, ShapeError, refusal
from ..engines import MOST_ELEMENTS
from ..spec import Numbers, Sizing
from ..tracing import innermost, is_tracing
from ._large_memory import LARGE, in_huge_pages


@contextmanager
def keep_order(device: torch.device) -> Iterator[None]:
    """Launches within come after all work on torch's current stream and before all later work."""
    if device.type != "cuda":
        yield
        return
    current = torch.cuda.current_stream(device)
    default = torch.cuda.default_stream(device)
    if current == default:
        yield
        return
    default.wait_stream(current)
    yield
    current.wait_stream(default)


LOWEST_ADDRESS = 1 << 32
"""Addresses below may be null plus an offset: that of a view whose storage was freed, as FSDP's are between calls."""


class Buffer(NamedTuple):
    """One array of a call: its whole shape, batch included, and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


def check_reach(op: str, sizing: Sizing, numbers: Numbers) -> None:
    """Refuse a call with an array of more elements than an index reaches. Raises ShapeError.

    Where tensors are copied for a kernel, this comes first: an expanded tensor may have as many in a few bytes.
    """
    # The last number is how many elements all arrays have.
    if numbers[-1] > MOST_ELEMENTS:
        for name in sizing.shapes:
            check_element_count(f"array `{name}` of op `{op}`", sizing.evaluate(name, numbers))


def check_element_count(array: str, shape: tuple[int, ...]) -> None:
    """Refuse an array of this shape if it has more elements than an index reaches. Raises ShapeError.

    `array` is what the message calls it.
    """
    count = math.prod(shape)
    if count > MOST_ELEMENTS:
        rows = [("shape", str(shape)), ("elements", f"{count:,}"), ("at most", f"{MOST_ELEMENTS:,}")]
        remedy = "Split the call: give it a part of the array at a time."
        raise ShapeError(refusal(f"{array} has more elements than an engine can index", rows, remedy))


def check_before_copy(array: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor with more elements than a 32-bit index can address, `vmap` batches included, before it is copied.

    An expanded tensor has them in a few bytes, and its copy would not. Raises ShapeError.
    """
    shape = tuple(innermost(tensor).shape)
    # A tracer's sizes may be symbols, which a comparison would fix.
    if not is_tracing() and all(isinstance(size, int) for size in shape):
        check_element_count(array, shape)


def unread(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Uninitialised memory, which must not be read; poisoned where TINSMITH_POISON asks for it."""
    memory = in_huge_pages(torch.empty(shape, dtype=dtype, device=device))
    return poison(memory) if config().poison else memory


def poison(memory: torch.Tensor) -> torch.Tensor:
    """Fill memory with values that tests detect: NaN, or the largest integer."""
    if memory.dtype == torch.bool:
        return memory.fill_(True)
    is_float = memory.dtype.is_floating_point
    return memory.fill_(float("nan") if is_float else torch.iinfo(memory.dtype).max)


def private(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy that may be overwritten. An expanded gradient becomes contiguous."""
    if tensor.nbytes < LARGE:
        return tensor.clone(memory_format=torch.contiguous_format)
    return in_huge_pages(torch.empty_like(tensor, memory_format=torch.contiguous_format)).copy_(tensor)


def as_new_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor's memory as a tensor that is no view: autograd lets users change it in place."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def adjoint_of(cotangent: torch.Tensor, is_spoiled: bool) -> torch.Tensor:
    """An output's adjoint: a private copy, or the cotangent itself if no kernel writes to it."""
    if cotangent.is_neg():
        cotangent = cotangent.resolve_neg()
    if not cotangent.is_contiguous():
        return private(cotangent)
    if cotangent.data_ptr() < LOWEST_ADDRESS:
        cotangent = with_memory(cotangent, "a cotangent")
    return private(cotangent) if is_spoiled else cotangent


def is_null(tensor: torch.Tensor) -> bool:
    """Return True if a tensor's storage is at address 0, so that the tensor's own address is its offset there."""
    return tensor.data_ptr() == tensor.storage_offset() * tensor.element_size()


def with_memory(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Return a tensor whose address is low with memory that a kernel may read. `what` is the tensor in messages.

    Torch's ZeroTensor, a tensor that is known to be zero, has none, and its clone has.

    Raises:
        DeviceError: its storage was freed, of which a clone would end the process; or it only wraps another tensor.
    """
    if not tensor.numel() or not is_null(tensor):
        return tensor
    is_freed = tensor.untyped_storage().nbytes() < tensor.nbytes
    if not is_freed and (copied := private(tensor)).data_ptr():
        return copied
    rows = [("tensor", f"{tuple(tensor.shape)} {tensor.dtype}")]
    if is_freed:
        remedy = "Restore its storage before the call: `untyped_storage().resize_(...)` freed it."
        raise DeviceError(refusal(f"{what} has no memory: its storage was freed", rows, remedy))
    raise DeviceError(refusal(f"{what} has no memory of its own", rows, "Pass the tensor that it wraps."))


def are_in_order(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether `in_order` would give all tensors back as they are."""
    return all(tensor.is_contiguous() and not tensor.is_neg() for tensor in tensors)


def in_order(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors with contiguous memory; copies of those that were not contiguous."""
    return [(tensor if tensor.is_contiguous() else private(tensor)).resolve_neg() for tensor in tensors]
