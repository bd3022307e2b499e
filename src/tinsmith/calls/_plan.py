"""Plan: runs calls of one kind, of any size, with functions that are made on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from .._lazy import lazy
from ..engines import COMPILING
from ..spec import Numbers
from ._captured_values import CapturedValues, Captures
from ._kind import Kind
from ._layout import Layout
from ._pace import Paces
from ._runner import Runner
from .backward import ReverseAt, Wish
from .fields import Look

Scalars = Mapping[str, Any]


class PassesForGradient(NamedTuple):
    """How calls run that may have a gradient.

    Attributes:
        forward: the forward pass: its results are all arrays, then what it keeps of loops.
        places: of the results, those that the backward pass reads; `names` are theirs.
        is_early: whether to prepare the backward pass before the forward pass runs.
        has_results: whether something is kept of loops.
    """

    forward: Runner
    places: tuple[int, ...]
    names: tuple[str, ...]
    is_early: bool
    has_results: bool


class Plan:
    """How to run calls of one kind, forward and backward.

    Attributes:
        names: of all arrays: inputs, outputs, scratch.
        outputs: where the outputs stand among all arrays; `inputs` how many inputs there are.
        steady_outputs: places among the outputs of those without a gradient.
        makes: memory that a forward pass makes first: outputs and scratch.
    """

    def __init__(self, kind: Kind, reverse: ReverseAt, layout: Layout, paces: Paces, captures: Captures) -> None:
        """`layout` is the forward pass; `paces` is what was learned of kernels; `captures` are the op's."""
        signature = kind.signature
        self.kind = kind
        self.signature = signature
        self.reverse = reverse
        self.names = kind.names
        self.inputs = len(signature.arrays)
        self.outputs = slice(self.inputs, self.inputs + len(signature.outputs))
        pairs = tuple(enumerate(signature.outputs))
        self.steady_outputs = tuple(place for place, name in pairs if name not in kind.floats)
        self._captures = captures
        # Set by the first call that may have a gradient.
        self._looks: tuple[Look, ...] | None = None
        self._is_capturing = False
        self._moving = tuple((place, name) for place, name in pairs if name in kind.floats)
        self._paces = paces
        self._forward = Runner(lambda: layout, kind, paces)
        self.makes = layout.makes
        self._gradients: dict[frozenset[str], PassesForGradient] = {}
        self._backward: dict[Wish, Runner] = {}
        # Filled by `_prepared_passes.Stepping`.
        self.prepared: dict[Any, Any] = {}

    def forward(self, inputs: Sequence[torch.Tensor], numbers: Numbers, scalars: Scalars) -> tuple[Any, ...]:
        """Run the kernels. Returns all arrays: inputs as given, then outputs, then scratch."""
        return self._forward.find(numbers, scalars)(inputs, (), numbers, scalars)

    def capture(self, templates: Mapping[str, Any]) -> CapturedValues | None:
        """Capture what a call depends on besides its arguments; None if that is nothing that may change."""
        looks = self._looks
        if looks is None:
            looks = self._looks = self._captures.looks(self.kind.case.fingerprints)
            self._is_capturing = self._captures.is_needed(templates)
        if not self._is_capturing:
            return None
        contents = tuple([look.contents() for look in looks]) if looks else ()
        return CapturedValues(self._captures, templates, self.kind.case.fingerprints, contents)

    @lazy
    def mark(self) -> torch.Tensor:
        """A number that stands for the Python values of its calls; saved with their tensors."""
        return torch.tensor(self._captures.number(self.kind.case.fingerprints), device="cpu")

    @property
    def runners(self) -> Iterator[tuple[str, Runner]]:
        """What runs the calls, and which pass it is, in words."""
        yield "forward", self._forward
        for active, passes in self._gradients.items():
            if passes.has_results:
                yield f"forward for a gradient in {', '.join(sorted(active))}", passes.forward
        for wish, runner in self._backward.items():
            words = " from checkpoints" if wish.has_checkpoints else ""
            yield f"backward for {', '.join(sorted(wish.active))}{words}", runner

    # Backward -----------------------------------------------------------------------------
    def passes(self, active: frozenset[str]) -> PassesForGradient:
        """How calls run whose `active` inputs want a gradient."""
        return self._gradients.get(active) or self._find_passes(active)

    def _find_passes(self, active: frozenset[str]) -> PassesForGradient:
        with COMPILING:
            self.reverse.check(active)
            wanted = active & self.kind.floats
            read = self.reverse.reads(wanted)
            places = [(place, name) for place, name in enumerate(self.names) if name in read]
            # Compiled in the forward pass where it would be another kernel later, since a Python value may change, or
            # where it may be refused: a stack that is too small crashes the process, so the call must raise before it
            # runs.
            is_early = any(self.kind.case.fingerprints) or self.reverse.needs_stacks(active)
            kept = self.reverse.forward_with_results(self.kind, wanted, self.makes)
            runner = self._forward
            if kept is not None:
                layout = kept.layout
                runner = Runner(lambda: layout, self.kind, self._paces)
                places += enumerate(kept.names, len(self.names))
            passes = PassesForGradient(
                runner,
                tuple(place for place, _ in places),
                tuple(name for _, name in places),
                is_early,
                kept is not None,
            )
            self._gradients[active] = passes
        return passes

    def prepare_backward(self, active: frozenset[str], numbers: Numbers, scalars: Scalars) -> None:
        """Make the backward pass, with the Python values of now; refused before any launch."""
        has_results = self.passes(active).has_results
        self._backward_runner(active, None, numbers, scalars, has_results).find(numbers, scalars)

    def _backward_runner(
        self,
        active: frozenset[str],
        given: frozenset[str] | None,
        numbers: Numbers,
        scalars: Scalars,
        has_results: bool,
    ) -> Runner:
        """What runs the backward pass for the inputs that want a gradient, from all outputs or those `given`."""
        # As `Wish` compares; making one takes half a microsecond of each backward pass.
        runner = self._backward.get((active, given, (), False, False, has_results))  # type: ignore[call-overload]
        if runner is not None:
            return runner
        stacks = self._stacks(active, numbers, scalars)
        return self._find_backward(Wish(active, given, stacks, has_results=has_results))

    def _run_backward(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        active: frozenset[str],
        given: frozenset[str] | None,
        numbers: Numbers,
        scalars: Scalars,
        has_results: bool = False,
    ) -> Sequence[torch.Tensor | None]:
        """Run the backward pass; from checkpoints where its tapes would be too long."""
        runner = self._backward_runner(active, given, numbers, scalars, has_results)
        result = runner.find(numbers, scalars)(saved, cotangents, numbers, scalars)
        # An integer is the bytes of tapes that the run would take (`PassWriter`). It stopped before it launched
        # anything that changes memory of the call, so it can be run again another way.
        if type(result) is not int:
            return result
        runner.longest_tape = max(runner.longest_tape, result)
        short = self._find_backward(Wish(active, given, has_checkpoints=True))
        return short.find(numbers, scalars)(saved, cotangents, numbers, scalars)

    def _stacks(self, active: frozenset[str], numbers: Numbers, scalars: Scalars) -> tuple[int, ...]:
        """Depths of the gradient stacks that an engine's reverse kernels need."""
        if not self.reverse.needs_stacks(active):
            return ()
        kind = self.kind
        shapes = {name: kind.sizing.evaluate(name, numbers)[name in kind.batched_arrays :] for name in kind.names}
        return self.reverse.stacks(active, shapes, {**scalars, **kind.case.templates})

    def _find_backward(self, wish: Wish) -> Runner:
        with COMPILING:
            if wish not in self._backward:
                # The function names no `self`: a plan that holds itself would keep its buffers until Python's garbage
                # collector runs.
                reverse, kind = self.reverse, self.kind
                self._backward[wish] = Runner(lambda: reverse.backward(kind, wish), kind, self._paces)
            return self._backward[wish]

    # Prepared passes, which `_prepared_passes` makes of layouts --------------------------------------
    def is_serial(self, numbers: Numbers, scalars: Scalars) -> bool:
        """Whether a launch of the forward pass of such a call uses one thread."""
        return any(self._forward.threads.choose(numbers, scalars))

    def note_pace(self, seconds: float, numbers: Numbers, scalars: Scalars) -> None:
        """Learn how long a forward pass took, without a distinction of the parts that use one thread."""
        threads = self._forward.threads
        counted = zip(threads.groups, threads.choose(numbers, scalars), threads.count(numbers, scalars), strict=True)
        for group, is_serial, operations in counted:
            if is_serial:
                group.pace.note(seconds, operations)

    def forward_layout(self, numbers: Numbers, scalars: Scalars) -> Layout:
        """The program of the forward pass."""
        return self._forward.layout(self._forward.threads.choose(numbers, scalars), numbers, scalars)

    def backward_layout(
        self, active: frozenset[str], given: frozenset[str], numbers: Numbers, scalars: Scalars
    ) -> Layout:
        """The program of the backward pass for `active` inputs, from the outputs that are `given` cotangents.

        It adds to gradients. Nothing is learned of its time: it uses several threads where all of the forward pass
        does.
        """
        groups: tuple[frozenset[str] | None, ...] = (None,)
        if given < frozenset(name for _, name in self._moving):
            groups = self.reverse.groups(active & self.kind.floats, given)
        group = groups[0] if len(groups) == 1 else None
        runner = self._find_backward(Wish(active, group, self._stacks(active, numbers, scalars), True))
        serial = runner.threads.choose(numbers, scalars)
        serial = serial if self.is_serial(numbers, scalars) else tuple(False for _ in serial)
        return runner.layout(serial, numbers, scalars)

    def backward(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        active: frozenset[str],
        numbers: Numbers,
        scalars: Scalars,
        has_results: bool = False,
    ) -> Sequence[torch.Tensor | None]:
        """Gradients of the inputs, in their order; None for those that are not `active`.

        `has_results` says that among what is saved is what the forward pass kept of loops, for just these inputs.
        """
        moving = self._moving
        # Nearly every call has a cotangent for each output. A list is faster than a generator here.
        if len(moving) < 2 or all([cotangents[number] is not None for number, _ in moving]):  # noqa: C419
            return self._run_backward(saved, cotangents, active, None, numbers, scalars, has_results)
        given = frozenset([name for number, name in moving if cotangents[number] is not None])
        rows = []
        for group in self.reverse.groups(active & self.kind.floats, given):
            pairs = zip(self.signature.outputs, cotangents, strict=True)
            alone = [cotangent if name in (group or given) else None for name, cotangent in pairs]
            rows.append(self._run_backward(saved, alone, active, group, numbers, scalars))
        return [_total(column) for column in zip(*rows, strict=True)]


def _total(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """The sum of one input's gradients."""
    present = [part for part in parts if part is not None]
    if len(present) < 2:
        return present[0] if present else None
    return torch.stack(present).sum(0)
