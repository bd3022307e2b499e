"""Large memory: asks Linux for huge pages, as page faults of new memory cost more than an elementwise kernel's work.

The C library's allocator gets each block of 32 MiB and more from the system, and returns it when it is freed. The first
write to each page of such a block, of 4 KiB, is a page fault. For 40 MB these take three times as long as with huge
pages, of 2 MiB. Many systems give a process huge pages only if it asks for them (`madvise`; see Linux,
Documentation/admin-guide/mm/transhuge.rst). Torch asks for them if the environment sets THP_MEM_ALLOC_ENABLE=1.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Sequence

import torch

LARGE = 2**25
"""Bytes from which glibc gets a block from the system (the maximum of its dynamic M_MMAP_THRESHOLD)."""

LONG = 2**15
"""Elements from which torch zeroes a tensor with several threads (at::internal::GRAIN_SIZE, torch 2.13)."""
MOST_ALONE = 2**20
"""Bytes up to which one thread zeroes memory: 20 us on the machine of benchmarks/results, as long as waking another."""


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
