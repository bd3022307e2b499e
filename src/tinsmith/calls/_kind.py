"""Kind: the properties of calls that only differ in sizes and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .._lazy import lazy
from ..spec import Sizing
from ._signature import Signature
from ._specialization import Specialization


@dataclass(frozen=True, eq=False)
class Kind:
    """What a plan is made for.

    Attributes:
        case: what decides which kernels the calls take.
        device: where they run.
        sizing: sizes of all arrays, and of memory that only generated kernels see.
    """

    case: Specialization
    device: torch.device
    sizing: Sizing

    @property
    def signature(self) -> Signature:
        """That of the op, or of what was generated from one."""
        return self.case.signature

    @property
    def dtypes(self) -> Mapping[str, torch.dtype]:
        """Of all arrays by name."""
        return self.case.dtypes

    @lazy
    def names(self) -> tuple[str, ...]:
        """Inputs, then outputs, then scratch."""
        return self.signature.arrays + self.signature.outputs + self.signature.scratch

    @lazy
    def batched_arrays(self) -> frozenset[str]:
        """Arrays that have a batch dimension, in front of all others."""
        if self.sizing.batch is None:
            return frozenset()
        return self.case.batched | (self.sizing.shapes.keys() - {*self.signature.arrays})

    @lazy
    def floats(self) -> frozenset[str]:
        """Arrays that can have a gradient: those of floats, but for what is detached."""
        floats = frozenset(name for name, dtype in self.dtypes.items() if dtype.is_floating_point)
        return floats - self.signature.detached

    def core(self, name: str) -> tuple[Any, ...]:
        """An array's shape without the batch dimension."""
        shape = self.sizing.shapes[name]
        return shape[1:] if name in self.batched_arrays else shape
