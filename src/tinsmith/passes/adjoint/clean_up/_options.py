"""What the clean-up of a backward pass depends on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

Extent = Callable[[str, int], object]
"""What is equal for axes of arrays that are known to be equally long: of an array and an axis."""


@dataclass(frozen=True, kw_only=True)
class CleanUpOptions:
    """What the clean-up of a backward pass depends on, besides the pass.

    Attributes:
        alone: arrays whose gradients one run of it makes.
        extent: tells which axes are equally long.
        outputs: arrays whose adjoint may be that of an input; None where each sample has a run of its own.
        has_vectors: whether loops that run in order gain by a gather.
    """

    alone: Collection[str]
    extent: Extent
    outputs: Collection[str] | None
    has_vectors: bool
