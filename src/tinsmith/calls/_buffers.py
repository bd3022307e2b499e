"""Buffers: memory that an engine may write.

An engine writes to every gradient that it gets: it adds to that of an input, and *zeroes* that of an output after
reading it. So it never gets the caller's tensors: adjoints of outputs are private copies, adjoints of inputs start at
zero, and the result is returned to torch once. Sizes were checked earlier; this file does not know the spec.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from .._config import config
from .._errors import DeviceError, ShapeError, refusal
from ..engines import MOST_ELEMENTS
from ..spec import Numbers, Sizing
from ..tracing import is_tracing, unwrap_levels
from ._memory import LARGE, use_huge_pages

LOWEST_ADDRESS = 1 << 32
"""An address below may be null plus an offset: the view of a freed storage. FSDP frees storages between calls."""


class Buffer(NamedTuple):
    """An array of a call: its name, its shape including the batch, and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


def check_reach(op: str, sizing: Sizing, numbers: Numbers) -> None:
    """Raise ShapeError if an array of a call has more elements than an engine's index can address.

    This must come before tensors are copied for a kernel: an expanded tensor may have that many in a few bytes.
    """
    # The last number is the number of elements of all arrays together.
    if numbers[-1] > MOST_ELEMENTS:
        for name in sizing.shapes:
            check_element_count(f"array `{name}` of op `{op}`", sizing.evaluate(name, numbers))


def check_element_count(array: str, shape: tuple[int, ...]) -> None:
    """Raise ShapeError if an array of this shape has more elements than an engine's index can address.

    `array` is what the message calls it.
    """
    count = math.prod(shape)
    if count > MOST_ELEMENTS:
        rows = [("shape", str(shape)), ("elements", f"{count:,}"), ("at most", f"{MOST_ELEMENTS:,}")]
        remedy = "Split the call: pass a part of the array at a time."
        raise ShapeError(refusal(f"{array} has more elements than an engine can index", rows, remedy))


def check_before_copy(array: str, tensor: torch.Tensor) -> None:
    """Raise ShapeError if a tensor, `vmap` batches included, has more elements than an engine's index can address.

    This must come before the tensor is copied: an expanded tensor may have that many in a few bytes, its copy may not.
    """
    shape = tuple(unwrap_levels(tensor).shape)
    # A tracer's sizes may be symbols, which a comparison would fix.
    if not is_tracing() and all(isinstance(size, int) for size in shape):
        check_element_count(array, shape)


def allocate_unread(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Allocate memory that must be written before it is read. `TINSMITH_POISON` fills it with NaN."""
    memory = use_huge_pages(torch.empty(shape, dtype=dtype, device=device))
    return poison(memory) if config().poison else memory


def poison(memory: torch.Tensor) -> torch.Tensor:
    """Fill memory with values that tests detect: NaN, or the largest integer."""
    if memory.dtype == torch.bool:
        return memory.fill_(True)
    is_float = memory.dtype.is_floating_point
    return memory.fill_(float("nan") if is_float else torch.iinfo(memory.dtype).max)


def copy_private(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to new, contiguous memory that a kernel may overwrite."""
    if tensor.nbytes < LARGE:
        return tensor.clone(memory_format=torch.contiguous_format)
    return use_huge_pages(torch.empty_like(tensor, memory_format=torch.contiguous_format)).copy_(tensor)


def make_adjoint(cotangent: torch.Tensor, is_spoiled: bool) -> torch.Tensor:
    """Return the memory of an output's adjoint: the cotangent itself, or a private copy if kernels write to it.

    A cotangent that is not contiguous is copied in any case.
    """
    if cotangent.is_neg():
        cotangent = cotangent.resolve_neg()
    if not cotangent.is_contiguous():
        return copy_private(cotangent)
    if cotangent.data_ptr() < LOWEST_ADDRESS:
        cotangent = ensure_memory(cotangent, "a cotangent")
    return copy_private(cotangent) if is_spoiled else cotangent


def is_null(tensor: torch.Tensor) -> bool:
    """Return True if a tensor's storage is at address 0, so that the tensor's address is merely its offset."""
    return tensor.data_ptr() == tensor.storage_offset() * tensor.element_size()


def ensure_memory(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Return a tensor that a kernel may read, for one whose address is low; `what` is its name in messages.

    A ZeroTensor of torch, which is known to be zero, has no memory; it is copied.

    Raises:
        DeviceError: the tensor's storage was freed (to copy it would crash the process), or it only wraps another
            tensor.
    """
    if not tensor.numel() or not is_null(tensor):
        return tensor
    is_freed = tensor.untyped_storage().nbytes() < tensor.nbytes
    if not is_freed and (copied := copy_private(tensor)).data_ptr():
        return copied
    rows = [("tensor", f"{tuple(tensor.shape)} {tensor.dtype}")]
    if is_freed:
        remedy = "Before the call, restore its storage with `untyped_storage().resize_(...)`, and its values."
        raise DeviceError(refusal(f"{what} has no memory: its storage was freed", rows, remedy))
    raise DeviceError(
        refusal(f"{what} has no memory of its own: it is a wrapper of another tensor", rows, "Pass the wrapped tensor.")
    )


def are_in_order(tensors: Sequence[torch.Tensor]) -> bool:
    """Return True if all tensors are contiguous and not lazily negated, so that `in_order` would copy none."""
    return all(tensor.is_contiguous() and not tensor.is_neg() for tensor in tensors)


def in_order(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors in contiguous memory and not lazily negated. Those that are so already are not copied."""
    return [(tensor if tensor.is_contiguous() else copy_private(tensor)).resolve_neg() for tensor in tensors]
