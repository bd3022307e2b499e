"""Large memory: asks Linux for huge pages, as page faults of new memory cost more than an elementwise kernel's work.

The allocator of the C library gets blocks of 32 MiB and more from the system each time, and returns them each time.
The first write to each of their pages, of 4 KiB, is a page fault: for 40 MB these take three times as long as with huge
pages, of 2 MiB. Many systems give a process these only where it asks for them (`madvise`; see Linux,
Documentation/admin-guide/mm/transhuge.rst). Torch asks for them if the environment sets THP_MEM_ALLOC_ENABLE=1.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Sequence

import torch

LARGE = 2**25
"""Bytes from which glibc allocates a block apart: the most that its M_MMAP_THRESHOLD becomes by itself."""


def in_huge_pages(memory: torch.Tensor) -> torch.Tensor:
    """The same memory, to which nobody has written yet; the system is asked to use huge pages for it."""
    advise = _find_advice() if memory.nbytes >= LARGE and memory.device.type == "cpu" else None
    if advise is not None:
        advise(memory.data_ptr(), memory.nbytes)
    return memory


def make_zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Zeros on the CPU, in huge pages where they take much memory."""
    return in_huge_pages(torch.empty(shape, dtype=dtype)).zero_()


@functools.cache
def _find_advice() -> Callable[[int, int], None] | None:
    """A function of an address and a number of bytes; None where a system has no such advice."""
    kind = getattr(mmap, "MADV_HUGEPAGE", None)
    madvise = getattr(ctypes.CDLL(None), "madvise", None) if kind is not None else None
    if madvise is None:
        return None
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def advise(address: int, size: int) -> None:
        # Whole pages alone may be named. Whether the system follows the advice makes no difference to the values.
        begin = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
        madvise(begin, (address + size) // mmap.PAGESIZE * mmap.PAGESIZE - begin, kind)

    return advise
