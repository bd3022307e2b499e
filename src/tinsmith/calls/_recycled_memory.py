"""Recycled memory: a pass keeps memory for the next pass, since new memory is slow.

The C library returns large blocks to the system, and the first write to each page of new memory is a page fault. Two
kinds of memory are kept: all of `LARGE` to `MOST_KEPT` bytes, also of results; and the smaller memory that a rollout
needs for itself, as large as its fields in each call, of which its kernels may change only a part. Zeroing new memory
of 6 MB took 2.3 ms, and 0.07 ms if it had been used before.

Smaller memory is zeroed and copied by one thread. Torch would wake its thread pool, which takes longer if other
processes use the cores (20 ms instead of 0.3 ms).

A block is given back when the last tensor that shares its memory is deleted, whoever holds it.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence

import torch

from .._cache import Cache
from ._buffers import as_new_tensor
from ._large_memory import LARGE, use_huge_pages

SMALL = 2**17
"""Bytes below which the C library keeps freed memory itself (its M_MMAP_THRESHOLD)."""
MOST_KEPT = 2**27
"""The maximum number of bytes in unused blocks."""
_KEPT: Cache[int, list[torch.Tensor]] = Cache("unused blocks of memory by size", 64)


def make_recycled_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a contiguous tensor into recycled memory."""
    copy = make_recycled(tensor.shape, tensor.dtype, tensor.device)
    if not _is_filled_alone(copy):
        return copy.copy_(tensor)
    ctypes.memmove(copy.data_ptr(), tensor.data_ptr(), copy.nbytes)
    return copy


def make_recycled_zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return zeros in recycled memory, like `torch.zeros`; their storage cannot be resized."""
    zeros = make_recycled(shape, dtype, device)
    if not _is_filled_alone(zeros):
        return zeros.zero_()
    ctypes.memset(zeros.data_ptr(), 0, zeros.nbytes)
    return zeros


def make_recycled(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return uninitialized recycled memory, like `torch.empty`; its storage cannot be resized."""
    size = math.prod(shape) * dtype.itemsize
    if not _is_recycled(size, device):
        return use_huge_pages(torch.empty(tuple(shape), dtype=dtype, device=device))
    blocks = _KEPT.get(size)
    try:
        block = blocks.pop() if blocks else None
    except IndexError:  # another thread was faster
        block = None
    if block is None:
        block = use_huge_pages(torch.empty(size, dtype=torch.uint8))
    # The storage below keeps the lease alive. When the lease is deleted, the block is given back.
    lease = (ctypes.c_byte * size).from_address(block.data_ptr())
    weakref.finalize(lease, _give_back, block).atexit = False
    return as_new_tensor(torch.frombuffer(lease, dtype=dtype).view(tuple(shape)))


def make_large(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Allocate uninitialized memory, like `torch.empty`; from `LARGE` bytes on, reuse that of earlier calls."""
    if math.prod(shape) * dtype.itemsize < LARGE:
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    return make_recycled(shape, dtype, device)


def _is_recycled(size: int, device: torch.device) -> bool:
    return device.type == "cpu" and SMALL <= size <= MOST_KEPT


def _is_filled_alone(memory: torch.Tensor) -> bool:
    """Return True if the C library fills this memory: it is small, and torch would wake its thread pool."""
    return _is_recycled(memory.nbytes, memory.device) and memory.nbytes < LARGE


def _give_back(block: torch.Tensor) -> None:
    size = block.nbytes
    if size + sum([known * len(blocks) for known, blocks in list(_KEPT.items())]) > MOST_KEPT:
        _KEPT.clear()
    blocks = _KEPT.get(size)
    if blocks is None:
        _KEPT.keep(size, [block])
    else:
        blocks.append(block)
