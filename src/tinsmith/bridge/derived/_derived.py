"""Derived: an op whose kernels were generated from those of another, and are launched as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...spec import Solution
from .._buffers import Buffer
from .._core import Call, Core
from .._plan import Kind, Plan
from .._signature import Signature
from .._steps import Situation
from ..backward import Runner, SourceAt, SourceReverse


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

    def made_of(self, call: Call, solution: Solution) -> list[Buffer]:
        """Not from this op's own spec, which has no items for what the base makes."""
        return self.made(call)

    def _new_plan(self, call: Call, situation: Situation, kind: Kind) -> Plan:
        return DerivedPlan(self, call, situation, kind)


class DerivedPlan(Plan):
    """How generated kernels are run in one situation: on the caller's memory and their own."""

    def __init__(self, core: DerivedCore, call: Call, situation: Situation, kind: Kind) -> None:
        super().__init__(situation, kind, core._pace)
        at = core.at(call)
        self._runner = Runner(at.case, at.emitted, at.forward, situation, frozenset())

    def forward(self, inputs: Sequence[torch.Tensor], scalars: Mapping[str, Any]) -> list[torch.Tensor]:
        makers = self._makers
        arrays = [*inputs, *[make() for make in makers.now or makers.find()]]
        self._runner.forward(dict(zip(self.names, arrays, strict=True)), scalars, self.launch)
        return arrays
