"""Derived: an op whose kernels were generated from those of another, and are launched as they are."""

from __future__ import annotations

from collections.abc import Sequence

from ...spec import QuickSolver, Solution
from .._buffers import Buffer
from .._core import Call, Core
from .._executor import Layout
from .._signature import Signature
from .._steps import Situation
from ..backward import SourceAt, SourceReverse, forward_layout


class DerivedCore(Core):
    """A core whose `kernels` come from `base`; those of the base's own engine run them."""

    def __init__(self, base: Core, signature: Signature) -> None:
        self.base = base
        super().__init__(signature, SourceReverse(signature, self.kernels))
        # the base's memory is made for each call of this one too, and its sizes may come from arguments that no
        # array of this one's own spec names
        self._fixed = tuple(dict.fromkeys((*base._fixed, *self._fixed)))

    def at(self, call: Call) -> SourceAt:
        """What was generated for calls of this kind."""
        found = call.reverse
        assert isinstance(found, SourceAt)
        return found

    def quick_solver(self, ranks: Sequence[int], names: Sequence[str]) -> QuickSolver | None:
        """Not from this op's own spec alone: its plans have memory whose sizes the base's spec tells."""
        return None

    def made_of(self, call: Call, solution: Solution) -> list[Buffer]:
        """Not from this op's own spec, which has no items for what the base makes."""
        return self.made(call)

    def _layouts(self, call: Call, situation: Situation) -> tuple[Layout, Layout]:
        at = self.at(call)
        found = forward_layout(at.case, at.emitted, at.forward, situation, self.signature.arrays, self._makes)
        return found, found
