"""Memory: new memory is slow, so huge pages are asked for, and a pass keeps memory for the next pass.

The C library's allocator gets each block of 32 MiB and more from the system, and returns it when it is freed. The first
write to each page of such a block, of 4 KiB, is a page fault, and page faults cost more than an elementwise kernel's
work. For 40 MB they take three times as long as with huge pages, of 2 MiB. Many systems give a process huge pages only
if it asks for them (`madvise`; see Linux, Documentation/admin-guide/mm/transhuge.rst). Torch asks for them if the
environment sets THP_MEM_ALLOC_ENABLE=1.

Two kinds of memory are kept (*recycled*): all of `LARGE` to `MOST_KEPT` bytes, also of results; and the smaller memory
that a rollout needs for itself, as large as its fields in each call, of which its kernels may change only a part.
Zeroing new memory of 6 MB took 2.3 ms, and 0.07 ms if it had been used before. A block is given back when the last
tensor that shares its memory is deleted, whoever holds it.

Smaller memory is zeroed and copied by one thread. Torch would wake its thread pool, which takes longer if other
processes use the cores (20 ms instead of 0.3 ms).
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import weakref
from collections.abc import Callable, Sequence

import torch

from .._cache import Cache

LARGE = 2**25
"""Bytes from which glibc gets a block from the system (the maximum of its dynamic M_MMAP_THRESHOLD)."""
LONG = 2**15
"""Elements from which torch zeroes a tensor with several threads (at::internal::GRAIN_SIZE, torch 2.13)."""
MOST_ALONE = 2**20
"""Bytes up to which one thread zeroes memory: 20 us on the machine of benchmarks/results, as long as waking another."""
SMALL = 2**17
"""Bytes below which the C library keeps freed memory itself (its M_MMAP_THRESHOLD)."""
MOST_KEPT = 2**27
"""The maximum number of bytes in unused blocks."""
_KEPT: Cache[int, list[torch.Tensor]] = Cache("unused blocks of memory by size", 64)


# Huge pages ------------------------------------------------------------------------------------------


def use_huge_pages(memory: torch.Tensor) -> torch.Tensor:
    """Ask the system to use huge pages for new memory if it is large and on the CPU. Return the memory."""
    advise = _find_advice() if memory.nbytes >= LARGE and memory.device.type == "cpu" else None
    if advise is not None:
        advise(memory.data_ptr(), memory.nbytes)
    return memory


def clear(memory: torch.Tensor) -> torch.Tensor:
    """Set new, contiguous memory on the CPU to zero, and return it.

    Torch wakes its thread pool for `LONG` elements and more, which takes longer than to zero `MOST_ALONE` bytes.
    """
    size = memory.nbytes
    if size > MOST_ALONE:
        return use_huge_pages(memory).zero_()
    ctypes.memset(memory.data_ptr(), 0, size)
    return memory


def make_zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros on the CPU, in huge pages if they are large."""
    return use_huge_pages(torch.empty(shape, dtype=dtype)).zero_()


@functools.cache
def _find_advice() -> Callable[[int, int], None] | None:
    """Return a function of an address and a number of bytes that asks for huge pages; None if there are none."""
    kind = getattr(mmap, "MADV_HUGEPAGE", None)
    madvise = getattr(ctypes.CDLL(None), "madvise", None) if kind is not None else None
    if madvise is None:
        return None
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def advise(address: int, size: int) -> None:
        # The system accepts whole pages only. It may ignore the advice, so the result is not checked.
        begin = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
        madvise(begin, (address + size) // mmap.PAGESIZE * mmap.PAGESIZE - begin, kind)

    return advise


# Recycled memory -------------------------------------------------------------------------------------


def make_recycled_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a contiguous tensor into recycled memory."""
    copy = make_recycled(tensor.shape, tensor.dtype, tensor.device)
    if not _is_filled_alone(copy):
        return copy.copy_(tensor)
    ctypes.memmove(copy.data_ptr(), tensor.data_ptr(), copy.nbytes)
    return copy


def make_recycled_zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Allocate a tensor of zeros in memory of an earlier result, if there is any. Its storage cannot be resized."""
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


def as_new_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on a contiguous tensor's memory that is not a view: autograd lets users change it in place."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
