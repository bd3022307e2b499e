"""Plan: everything about a call that does not depend on where its memory lies.

Made once for a combination of sizes and dtypes, and then run as a short straight list:
allocate, take pointers, launch. Nothing here is decided twice: what calls have in common that
differ in sizes alone is a `Kind`, so that a plan for new sizes costs a few microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..engines import Launch, one_at_a_time
from ._executor import Executor, Layout
from ._field_contents import Look
from ._steps import Situation, Step, product
from ._streams import in_order
from .backward import Pullback, ReverseAt

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


class Kind:
    """What plans have in common whose calls differ in sizes alone.

    Attributes:
        reverse: where their gradient comes from.
        names: of all arrays: inputs, outputs, scratch.
        outputs: where the outputs stand among all arrays.
        steady_outputs: places among the outputs of those without a gradient; `moving` are (place, name) of the others.
        prepares_backward: whether the backward pass is made with the forward one.
        layouts: of the forward pass on several threads, and on one.
        pullbacks: backward passes of a first plan.
        saved: places of what backward passes read, by the inputs that want a gradient.
    """

    def __init__(self, situation: Situation, reverse: ReverseAt, layouts: tuple[Layout, Layout]) -> None:
        signature = situation.signature
        self.layouts = layouts
        self.reverse = reverse
        self.names = tuple(situation.shapes)
        self.floats = situation.floats
        self.inputs = len(signature.arrays)
        self.outputs = slice(self.inputs, self.inputs + len(signature.outputs))
        pairs = tuple(enumerate(signature.outputs))
        self.steady_outputs = tuple(place for place, name in pairs if name not in self.floats)
        self.moving = tuple((place, name) for place, name in pairs if name in self.floats)
        self.prepares_backward = any(situation.fingerprints) or reverse.depends_on_sizes
        self.pullbacks: dict[tuple[Any, ...], Pullback] = {}
        self.saved: dict[frozenset[str], tuple[int, ...]] = {}
        self.looks: tuple[Look, ...] | None = None  # asked for by the first call that may have a gradient


class Plan:
    """How to run one op in one situation, forward and backward."""

    def __init__(self, situation: Situation, kind: Kind, pace: Pace) -> None:
        self.situation = situation
        self.signature = situation.signature
        self.kind = kind
        self.reverse = kind.reverse
        self.names, self.inputs, self.outputs = kind.names, kind.inputs, kind.outputs
        self.steady_outputs = kind.steady_outputs
        self.prepares_backward = kind.prepares_backward
        self._pace = pace
        self._elements = sum([product(shape) for shape in situation.shapes.values()])
        self.is_serial = situation.device.type == "cpu" and self._elements < pace.serial_below
        self._is_cuda = situation.device.type == "cuda"
        self._executor: Executor | None = None
        self._pullbacks: dict[tuple[frozenset[str], frozenset[str] | None], Pullback] = {}

    def resize(self, situation: Situation) -> Plan:
        """The plan of a call that differs in sizes alone."""
        return Plan(situation, self.kind, self._pace)

    def forward(self, inputs: Sequence[torch.Tensor], scalars: Mapping[str, Any]) -> Sequence[torch.Tensor]:
        """Run the kernels. Returns all arrays: inputs as given, then outputs, then scratch."""
        executor = self._executor
        if executor is None:
            executor = self._executor = Executor(self.kind.layouts[self.is_serial], self.situation)
        memory = executor.run(inputs, scalars, self.launch)
        return memory if len(memory) == len(self.names) else memory[: len(self.names)]

    def launch(self, steps: Sequence[Step], pointers: Sequence[int], scalars: Mapping[str, Any]) -> None:
        """Run launches in order, in order with torch's own work, and watch how long a serial one takes."""
        if self._is_cuda:
            in_order(self.situation.device, lambda: _run(steps, pointers, scalars))
            return
        begin = time.perf_counter()
        for one in steps:
            if one.is_plain:
                one.launch(one.entries, pointers, ())
            else:
                one.run(pointers, scalars)
        if self.is_serial and steps:
            # each launch would wake the thread pool: a thousand short ones take long together, and gain nothing
            seconds = (time.perf_counter() - begin) / len(steps)
            pace = self._pace
            if seconds > SERIAL_LIMIT or pace.slow_in_a_row:
                pace.note(seconds, self._elements, [one.launch for one in steps] if seconds > SERIAL_LIMIT else ())
            if self._elements >= pace.serial_below:
                self._go_parallel()

    def _go_parallel(self) -> None:
        self.is_serial = False
        self._executor = None
        self._pullbacks = {}

    # Backward -----------------------------------------------------------------------------
    def saved(self, active: frozenset[str]) -> tuple[int, ...]:
        """Places, in the list of all arrays, of those that the backward pass reads."""
        found = self.kind.saved.get(active)
        return self._find_saved(active) if found is None else found

    @one_at_a_time
    def _find_saved(self, active: frozenset[str]) -> tuple[int, ...]:
        self.reverse.check(active)
        read = self.reverse.reads(active & self.kind.floats)
        found = self.kind.saved[active] = tuple(i for i, name in enumerate(self.names) if name in read)
        return found

    def pullback(self, active: frozenset[str], given: frozenset[str] | None = None) -> Pullback:
        """The backward pass for the inputs that want a gradient, from all outputs or those `given`."""
        found = self._pullbacks.get((active, given))
        if found is not None:
            return found
        first = self.kind.pullbacks.get((active, given, self.is_serial)) or self._first_pullback(active, given)
        found = self._pullbacks[active, given] = first.resize(self.situation)
        return found

    @one_at_a_time
    def _first_pullback(self, active: frozenset[str], given: frozenset[str] | None) -> Pullback:
        pullbacks, key = self.kind.pullbacks, (active, given, self.is_serial)
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
        moving = self.kind.moving
        if len(moving) < 2 or all([cotangents[number] is not None for number, _ in moving]):  # noqa: C419  # faster
            return self.pullback(active).run(saved, cotangents, scalars, self.launch)
        given = frozenset([name for number, name in moving if cotangents[number] is not None])
        found = []
        for group in self.reverse.groups(active & self.kind.floats, given):
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
