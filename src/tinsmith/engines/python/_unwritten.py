"""Memory that no kernel has written yet, so that a read of it is an error."""

from __future__ import annotations

import weakref

import numpy as np
import torch

_MASKS: dict[int, tuple[weakref.ref[torch.Tensor], np.ndarray]] = {}
"""By address: a tensor, and whether each of its numbers was written."""


def track_writes(memory: torch.Tensor) -> torch.Tensor:
    """Register a tensor as uninitialized, and return it: a read of an element is an error until a kernel writes it."""
    address = memory.data_ptr()
    # Another tensor may have its address as soon as it is gone.
    _MASKS[address] = (weakref.ref(memory, lambda gone: _forget(address, gone)), np.zeros(memory.numel(), np.bool_))
    return memory


def _forget(address: int, gone: weakref.ref[torch.Tensor]) -> None:
    if address in _MASKS and _MASKS[address][0] is gone:
        del _MASKS[address]


def find_written(address: int, count: int) -> np.ndarray | None:
    """Return the mask of the elements that kernels have written, flat; None if writes to the array are not tracked."""
    known = _MASKS.get(address)
    return known[1] if known is not None and len(known[1]) == count else None
