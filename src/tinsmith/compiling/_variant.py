"""Variant: the key of a compiled kernel: dtypes and ranks of its arrays, and the kernel's form."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from .._lazy import lazy
from ..ir import nodes, walk


class ArrayType(NamedTuple):
    """What a variant fixes of one array: dtype, rank as the kernel sees it without the batch, element dims."""

    dtype: torch.dtype
    rank: int
    element: tuple[int, ...] = ()
    has_gradient: bool = False
    is_batched: bool = False


class Alignment(enum.Enum):
    """Which arrays of a launch are aligned: their addresses are multiples of a machine vector's size.

    Launches ensure it, for those arrays of which the compiled kernel asks for it (`Compiled.vector_sizes`). A kernel
    mostly changes memory that tinsmith allocated for it, which is aligned. What it reads is the caller's, and may be a
    view such as `x[1:]`, so there is a form between the two others.
    """

    NONE = "none"
    CHANGED = "those that the kernel changes"
    ALL = "all"

    def select(self, names: Iterable[str], kernel: nodes.Kernel) -> frozenset[str]:
        """Return those of a kernel's arrays that are aligned."""
        if self is Alignment.NONE:
            return frozenset()
        return frozenset(names) if self is Alignment.ALL else frozenset(names) & walk.find_changed(kernel.body)


@dataclass(frozen=True)
class Variant:
    """Everything that a compiled form of a kernel depends on. An `adjoint` variant, an engine's own reverse, is never
    serial.
    """

    arrays: tuple[tuple[str, ArrayType], ...]
    adjoint: bool = False
    is_serial: bool = False
    fingerprint: tuple[Any, ...] = ()
    stack: int = 0
    is_simd: bool = False
    alignment: Alignment = Alignment.NONE

    @lazy
    def batched_arrays(self) -> frozenset[str]:
        """Return the names of the arrays that have a batch dimension."""
        return frozenset(name for name, array in self.arrays if array.is_batched)

    def find_aligned(self, kernel: nodes.Kernel) -> frozenset[str]:
        """Return the names of the arrays whose memory begins at a multiple of a machine vector's size."""
        plain = (name for name, one in self.arrays if not (one.element or one.has_gradient))
        return self.alignment.select(plain, kernel)

    @property
    def single(self) -> Variant:
        """The variant for one sample of the batch."""
        return replace(self, arrays=tuple((name, array._replace(is_batched=False)) for name, array in self.arrays))

    @property
    def parallel(self) -> Variant:
        """The variant of the kernel as it was written: forward, for one sample, on several threads."""
        return replace(self.single, adjoint=False, is_serial=False, stack=0, alignment=Alignment.NONE)

    def __post_init__(self) -> None:
        """Assert that the variant is not both an engine's reverse and serial."""
        assert not (self.adjoint and self.is_serial), "a variant for an engine's reverse mode must not be serial"
