"""Plan: how calls of one kind are run, whatever their sizes: functions, made when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..engines import COMPILING
from ..spec import Numbers
from ._executor import executor
from ._field_contents import Look
from ._kind import Kind
from ._layout import Layout
from ._pace import Pace
from ._pass_text import Pass
from .backward import ReverseAt, Wish

Scalars = Mapping[str, Any]


class Plan:
    """How to run calls of one kind, forward and backward.

    Attributes:
        names: of all arrays: inputs, outputs, scratch.
        outputs: where the outputs stand among all arrays; `inputs` how many inputs there are.
        steady_outputs: places among the outputs of those without a gradient.
    """

    def __init__(
        self, kind: Kind, reverse: ReverseAt, layouts: tuple[Layout, Layout], paces: tuple[Pace, Pace]
    ) -> None:
        """`layouts` are the forward pass, on several threads and on one; `paces` are those of the two passes."""
        signature = kind.signature
        self.kind = kind
        self.signature = signature
        self.reverse = reverse
        self.names = kind.names
        self.inputs = len(signature.arrays)
        self.outputs = slice(self.inputs, self.inputs + len(signature.outputs))
        pairs = tuple(enumerate(signature.outputs))
        self.steady_outputs = tuple(place for place, name in pairs if name not in kind.floats)
        self.looks: tuple[Look, ...] | None = None  # asked for by the first call that may have a gradient
        self._moving = tuple((place, name) for place, name in pairs if name in kind.floats)
        self._pace, self._backward_pace = paces
        self._is_cpu = kind.device.type == "cpu"
        self._layouts = layouts
        self._forward: dict[bool, Pass] = {}
        self._saved: dict[frozenset[str], tuple[tuple[int, ...], bool]] = {}
        self._backward: dict[tuple[Any, ...], Pass] = {}
        self._backward_layouts: dict[Wish, Layout] = {}
        self.prepared: dict[Any, Any] = {}  # kept by `_prepared.Stepping`

    def forward(self, inputs: Sequence[torch.Tensor], numbers: Numbers, scalars: Scalars) -> tuple[Any, ...]:
        """Run the kernels. Returns all arrays: inputs as given, then outputs, then scratch."""
        is_serial = self.is_serial(numbers)
        run = self._forward.get(is_serial) or self._make_forward(is_serial)
        return run(inputs, (), numbers, scalars)

    def _make_forward(self, is_serial: bool) -> Pass:
        with COMPILING:
            if is_serial not in self._forward:
                self._forward[is_serial] = self._executor(self._layouts[is_serial], self._pace if is_serial else None)
            return self._forward[is_serial]

    def _executor(self, layout: Layout, pace: Pace | None) -> Pass:
        # Each launch would wake the thread pool: a thousand short ones take long together, and gain nothing. A
        # deterministic op takes one thread or several by its sizes alone: the two may differ in the last digit.
        return executor(layout, self.kind, None if self.signature.is_deterministic else pace)

    # Backward -----------------------------------------------------------------------------
    def get_saved(self, active: frozenset[str]) -> tuple[tuple[int, ...], bool]:
        """Places, in the list of all arrays, of those that the backward pass reads; and whether to prepare it."""
        found = self._saved.get(active)
        return self._find_saved(active) if found is None else found

    def _find_saved(self, active: frozenset[str]) -> tuple[tuple[int, ...], bool]:
        with COMPILING:
            self.reverse.check(active)
            read = self.reverse.reads(active & self.kind.floats)
            places = tuple(i for i, name in enumerate(self.names) if name in read)
            is_early = any(self.kind.case.fingerprints) or self.reverse.needs_stacks(active)
            found = self._saved[active] = places, is_early
        return found

    def prepare_backward(self, active: frozenset[str], numbers: Numbers, scalars: Scalars) -> None:
        """Make the backward pass, with the Python values of now; refused before any launch."""
        self._run_backward(active, None, numbers, scalars)

    def _run_backward(
        self, active: frozenset[str], given: frozenset[str] | None, numbers: Numbers, scalars: Scalars
    ) -> Pass:
        """The backward pass for the inputs that want a gradient, from all outputs or those `given`."""
        is_serial = self._is_cpu and numbers[-1] < self._backward_pace.serial_below
        # As `Wish` compares; making one takes half a microsecond of each backward pass.
        found = self._backward.get((active, given, is_serial, (), False))
        if found is not None:
            return found
        return self._make_backward(Wish(active, given, is_serial, self._stacks(active, numbers, scalars)))

    def _stacks(self, active: frozenset[str], numbers: Numbers, scalars: Scalars) -> tuple[int, ...]:
        """Depths of the gradient stacks that an engine's reverse kernels need."""
        if not self.reverse.needs_stacks(active):
            return ()
        kind = self.kind
        shapes = {name: kind.sizing.evaluate(name, numbers)[name in kind.batched :] for name in kind.names}
        return self.reverse.stacks(active, shapes, {**scalars, **kind.case.templates})

    def _make_backward(self, wish: Wish) -> Pass:
        with COMPILING:
            if wish not in self._backward:
                self._backward[wish] = self._executor(
                    self.reverse.backward(self.kind, wish), self._backward_pace if wish.is_serial else None
                )
            return self._backward[wish]

    # Prepared passes, which `_prepared` makes of layouts --------------------------------------
    def is_serial(self, numbers: Numbers) -> bool:
        """Whether launches of calls with these sizes use one thread."""
        return self._is_cpu and numbers[-1] < self._pace.serial_below

    def note_pace(self, seconds: float, numbers: Numbers) -> None:
        """Learn how long a launch took that used one thread."""
        self._pace.note(seconds, numbers[-1])

    def forward_layout(self, numbers: Numbers) -> Layout:
        """The program of the forward pass."""
        return self._layouts[self.is_serial(numbers)]

    def backward_layout(
        self, active: frozenset[str], given: frozenset[str], numbers: Numbers, scalars: Scalars
    ) -> Layout:
        """The program of the backward pass for `active` inputs, from the outputs that are `given` cotangents.

        It adds to gradients, and uses one thread where the forward pass does: only that one's time is taken.
        """
        groups: tuple[frozenset[str] | None, ...] = (None,)
        if given < frozenset(name for _, name in self._moving):
            groups = self.reverse.groups(active & self.kind.floats, given)
        group = groups[0] if len(groups) == 1 else None
        wish = Wish(active, group, self.is_serial(numbers), self._stacks(active, numbers, scalars), True)
        with COMPILING:
            if wish not in self._backward_layouts:
                self._backward_layouts[wish] = self.reverse.backward(self.kind, wish)
            return self._backward_layouts[wish]

    def backward(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        active: frozenset[str],
        numbers: Numbers,
        scalars: Scalars,
    ) -> Sequence[torch.Tensor | None]:
        """Gradients of the inputs, in their order; None for those that are not `active`."""
        moving = self._moving
        if len(moving) < 2 or all([cotangents[number] is not None for number, _ in moving]):  # noqa: C419  # faster
            return self._run_backward(active, None, numbers, scalars)(saved, cotangents, numbers, scalars)
        given = frozenset([name for number, name in moving if cotangents[number] is not None])
        found = []
        for group in self.reverse.groups(active & self.kind.floats, given):
            pairs = zip(self.signature.outputs, cotangents, strict=True)
            alone = [cotangent if name in (group or given) else None for name, cotangent in pairs]
            found.append(self._run_backward(active, group, numbers, scalars)(saved, alone, numbers, scalars))
        return [_total(column) for column in zip(*found, strict=True)]


def _total(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """The sum of one input's gradients."""
    found = [part for part in parts if part is not None]
    if len(found) < 2:
        return found[0] if found else None
    return torch.stack(found).sum(0)
