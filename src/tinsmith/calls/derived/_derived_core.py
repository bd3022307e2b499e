"""Derived cores: cores whose kernels were generated from those of another core, and are launched as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...spec import Item
from .._core import Call, Core, GradientSource
from .._key import CallKey
from .._routine import Routine
from .._signature import Signature, compute_lazy_values
from ..backward import SourceAt, SourceReverse, forward_routine


class DerivedCore(Core):
    """A core whose `kernels` are generated from those of `base`, and run on the base's engine."""

    def __init__(self, base: Core, signature: Signature) -> None:
        self.base = base
        self.source = SourceReverse(signature, self.kernels)
        super().__init__(signature, GradientSource(lambda: self.source))
        # A derivative compares what a call of the base captured.
        self.captures = base.captures

    def find_source(self, call: Call) -> SourceAt:
        """Return the generated kernels and gradients for calls of this kind."""
        reverse = call.reverse
        assert isinstance(reverse, SourceAt)
        return reverse

    def build_forward(self, key: CallKey) -> Routine:
        at = self.source.specialize(key)
        return forward_routine(at.key, at.emit, at.forward, self._makes)

    def base_call(self, call: Call) -> Call:
        """Return the call of the base that goes with a call of this core, whose further arrays come after its own."""
        count = len(self.base.signature.arrays)
        batched = call.batched & frozenset(self.base.signature.arrays)
        return replace(call, core=self.base, shapes=call.shapes[:count], dtypes=call.dtypes[:count], batched=batched)

    def solve_sizes(self, call: Call) -> Mapping[str, tuple[int, ...]]:
        return self.base.solve_sizes(self.base_call(call))


def add_inputs(base: Signature, items: Sequence[Item]) -> Signature:
    """Return a signature with further inputs, after its own. They are the last arguments of a call."""
    names = tuple(item.name for item in items)
    spec = replace(base.spec, inputs=(*base.spec.inputs, *items))
    return compute_lazy_values(replace(base, spec=spec, order=(*base.order, *names), arrays=(*base.arrays, *names)))
