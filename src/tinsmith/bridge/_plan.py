"""Plan: everything about a call that does not depend on where its memory lies.

Made once for a combination of sizes and dtypes, and then run as a short straight list:
allocate, take pointers, launch. Nothing here is decided twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..engines import Launch, one_at_a_time
from ._buffers import unread_maker, zeros_maker
from ._field_contents import Look
from ._stage import Stage
from ._steps import Situation, Step, Use, product, step
from ._streams import in_order
from .backward import Backward, ReverseAt

SERIAL_LIMIT = 400e-6
"""Seconds. A serial launch that takes longer would have been worth waking the thread pool for."""
SLOW_LAUNCHES = 4
"""That many in a row, and the thread pool is used: one may be slow by accident."""


@dataclass
class Pace:
    """What all plans of an op have learned about serial launches.

    Size alone does not tell how long a kernel takes. An op whose serial launches turn out slow
    uses the thread pool from that size on, in every plan. `_started` are kernels that were launched before.
    """

    serial_below: int
    slow_in_a_row: int = 0
    _started: set[Launch] = field(default_factory=set)

    def note(self, seconds: float, elements: int, kernels: Iterable[Launch] = ()) -> None:
        """Learn from a serial launch of these kernels over so many elements: seconds for each."""
        if seconds > SERIAL_LIMIT and not self._started.issuperset(kernels):
            # an engine makes machine code at a kernel's first launch, and one call has several first launches
            self._started.update(kernels)
            return
        self.slow_in_a_row = self.slow_in_a_row + 1 if seconds > SERIAL_LIMIT else 0
        if self.slow_in_a_row >= SLOW_LAUNCHES:
            self.serial_below = min(self.serial_below, elements)
            self.slow_in_a_row = 0


class Plan:
    """How to run one op in one situation, forward and backward."""

    def __init__(self, situation: Situation, reverse: ReverseAt, pace: Pace) -> None:
        buffers, signature = situation.buffers, situation.signature
        self.situation = situation
        self.signature = signature
        self.reverse = reverse
        self.names = tuple(buffers)
        self.floats = situation.floats
        self.inputs = len(signature.arrays)
        self.outputs = slice(self.inputs, self.inputs + len(signature.outputs))
        self.steady_outputs = tuple(i for i, name in enumerate(signature.outputs) if name not in self.floats)
        self._made = tuple(
            (zeros_maker if signature.starts_at_zero(name) else unread_maker)(buffers[name], situation.device)
            for name in signature.outputs + signature.scratch
        )
        self._pace = pace
        self._elements = sum(product(buffer.shape) for buffer in buffers.values())
        self.is_serial = situation.device.type == "cpu" and self._elements < pace.serial_below
        self.prepares_backward = any(situation.fingerprints) or reverse.depends_on_sizes
        self._is_cuda = situation.device.type == "cuda"
        self._steps: tuple[Step, ...] = ()
        self._pullbacks: dict[tuple[frozenset[str], frozenset[str] | None], Backward] = {}
        self._moving = tuple((n, name) for n, name in enumerate(signature.outputs) if name in self.floats)
        self._saved: dict[frozenset[str], tuple[int, ...]] = {}
        self.looks: tuple[Look, ...] | None = None  # asked for by the first call that may have a gradient

    def forward(self, inputs: Sequence[torch.Tensor], scalars: Mapping[str, Any]) -> list[torch.Tensor]:
        """Run the kernels. Returns all arrays: inputs as given, then outputs, then scratch."""
        steps = self._steps or self._make_steps()
        arrays = [*inputs, *[make() for make in self._made]]
        pointers = [array.data_ptr() for array in arrays]
        pointers.append(0)
        self.launch(steps, pointers, scalars)
        return arrays

    def launch(self, steps: Sequence[Step], pointers: Sequence[int], scalars: Mapping[str, Any]) -> None:
        """Run launches in order, in order with torch's own work, and watch how long a serial one takes."""
        if self._is_cuda:
            in_order(self.situation.device, lambda: _run(steps, pointers, scalars))
            return
        begin = time.perf_counter()
        for one in steps:
            one.run(pointers, scalars)
        if self.is_serial and steps:
            # each launch would wake the thread pool: a thousand short ones take long together, and gain nothing
            seconds = (time.perf_counter() - begin) / len(steps)
            self._pace.note(seconds, self._elements, [one.launch for one in steps] if seconds > SERIAL_LIMIT else ())
            if self._elements >= self._pace.serial_below:
                self._go_parallel()

    def _go_parallel(self) -> None:
        self.is_serial = False
        self._steps = ()
        self._pullbacks = {}

    @one_at_a_time
    def _make_steps(self) -> tuple[Step, ...]:
        self._steps = self._steps or tuple(
            step(self.situation, stage, self._uses(stage), adjoint=False, is_serial=self.is_serial)
            for stage in self.signature.stages
        )
        return self._steps

    def _uses(self, stage: Stage) -> list[Use]:
        batched = self.situation.batched
        return [Use(name, name, self.names.index(name), -1, name in batched) for name in stage.arrays]

    # Backward -----------------------------------------------------------------------------
    def saved(self, active: frozenset[str]) -> tuple[int, ...]:
        """Places, in the list of all arrays, of those that the backward pass reads."""
        found = self._saved.get(active)
        return self._find_saved(active) if found is None else found

    @one_at_a_time
    def _find_saved(self, active: frozenset[str]) -> tuple[int, ...]:
        self.reverse.check(active)
        read = self.reverse.reads(active & self.floats)
        found = self._saved[active] = tuple(i for i, name in enumerate(self.names) if name in read)
        return found

    def pullback(self, active: frozenset[str], given: frozenset[str] | None = None) -> Backward:
        """The backward pass for the inputs that want a gradient, from all outputs or those `given`."""
        found = self._pullbacks.get((active, given))
        return self._make_pullback(active, given) if found is None else found

    @one_at_a_time
    def _make_pullback(self, active: frozenset[str], given: frozenset[str] | None) -> Backward:
        pullbacks, key = self._pullbacks, (active, given)
        if key not in pullbacks:
            pullbacks[key] = self.reverse.backward(self.situation, active, is_serial=self.is_serial, given=given)
        return pullbacks[key]

    def backward(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        active: frozenset[str],
        scalars: Mapping[str, Any],
    ) -> list[torch.Tensor | None]:
        """Gradients of the inputs, in their order; None for those that are not `active`."""
        moving = self._moving
        if len(moving) < 2 or all([cotangents[number] is not None for number, _ in moving]):  # noqa: C419  # faster
            return self.pullback(active).run(saved, cotangents, scalars, self.launch)
        given = frozenset([name for number, name in moving if cotangents[number] is not None])
        found = []
        for group in self.reverse.groups(active & self.floats, given):
            pairs = zip(self.signature.outputs, cotangents, strict=True)
            alone = [cotangent if name in (group or given) else None for name, cotangent in pairs]
            found.append(self.pullback(active, group).run(saved, alone, scalars, self.launch))
        return [_total(column) for column in zip(*found, strict=True)]


def _total(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """The sum of one input's gradients."""
    found = [part for part in parts if part is not None]
    if len(found) < 2:
        return found[0] if found else None
    return torch.stack(found).sum(0)


def _run(steps: Sequence[Step], pointers: Sequence[int], scalars: Mapping[str, Any]) -> None:
    for one in steps:
        one.run(pointers, scalars)
