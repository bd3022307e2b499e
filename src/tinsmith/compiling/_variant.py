"""Variant: the key of a compiled kernel: dtypes and ranks of its arrays, and the kernel's form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from .._lazy import lazy


class ArrayType(NamedTuple):
    """What a variant fixes of one array: dtype, rank as the kernel sees it without the batch, element dims."""

    dtype: torch.dtype
    rank: int
    element: tuple[int, ...] = ()
    has_gradient: bool = False
    is_batched: bool = False


@dataclass(frozen=True)
class Variant:
    """Everything that a compiled form of a kernel depends on. An `adjoint` variant, an engine's own reverse, is never
    serial. If it `is_aligned`, launches ensure that memory begins at multiples of a machine vector's size, where the
    compiled kernel asks for that.
    """

    arrays: tuple[tuple[str, ArrayType], ...]
    adjoint: bool = False
    is_serial: bool = False
    fingerprint: tuple[Any, ...] = ()
    stack: int = 0
    is_simd: bool = False
    is_aligned: bool = False

    @lazy
    def batched_arrays(self) -> frozenset[str]:
        """Return the names of the arrays that have a batch dimension."""
        return frozenset(name for name, array in self.arrays if array.is_batched)

    def find_aligned(self) -> frozenset[str]:
        """Return the names of the arrays whose memory begins at a multiple of a machine vector's size."""
        plain = (name for name, one in self.arrays if not (one.element or one.has_gradient))
        return frozenset(plain) if self.is_aligned else frozenset()

    @property
    def single(self) -> Variant:
        """The variant for one sample of the batch."""
        return replace(self, arrays=tuple((name, array._replace(is_batched=False)) for name, array in self.arrays))

    @property
    def parallel(self) -> Variant:
        """The variant of the kernel as it was written: forward, for one sample, on several threads."""
        return replace(self.single, adjoint=False, is_serial=False, stack=0, is_aligned=False)

    def __post_init__(self) -> None:
        """Assert that the variant is not both an engine's reverse and serial."""
        assert not (self.adjoint and self.is_serial), "a variant for an engine's reverse mode must not be serial"
