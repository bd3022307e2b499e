"""Program: runs calls with one key, forward and backward.

A program's passes are `Routine`s: short lists of actions. `Runner` turns them into functions when a call first needs
one. `_programs.py` finds the program of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .. import tracing
from .._lazy import lazy
from .._preparation import show_preparation
from ..engines import COMPILING, has_streams
from ..spec import Numbers
from . import backward
from ._captured_values import CapturedValues, Captures
from ._core import GradientSource
from ._executor import PassWriter
from ._key import CallKey
from ._pass_text import Pass
from ._routine import Routine, Take
from ._slow_preparation import PreparationTimer
from ._threads import Paces, Scalars, Serial, Threads
from .fields import Look

if TYPE_CHECKING:
    from .backward import ReverseAt, Wish


class PassesForGradient(NamedTuple):
    """How calls run that may have a gradient.

    Attributes:
        forward: runs the forward pass, whose results are all arrays, then what it keeps of loops for the backward pass.
        places: the places of the results that the backward pass reads; `names` are their names.
        is_early: whether to prepare the backward pass before the forward pass runs.
        has_results: whether the forward pass keeps something of loops.
    """

    forward: Runner
    places: tuple[int, ...]
    names: tuple[str, ...]
    is_early: bool
    has_results: bool


class Program:
    """Runs calls with one key. It is in no reference cycle, so its memory is freed with the last reference to it.

    Attributes:
        key: of the calls; `signature` is the key's, and `names` are those of all arrays (inputs, outputs, scratch).
        active: the inputs that require a gradient.
        outputs: the slice of the outputs among all arrays; `inputs` is the number of inputs.
        steady_outputs: the places among the outputs of those without a gradient.
        is_single: whether there is one output, and it has a gradient.
        known_runners: runners of backward passes from all cotangents, by autograd's flags of the gradients it needs.
        makes: the memory that a forward pass allocates first: outputs and scratch.
        is_recorded: whether a call with a gradient must record what its atomics return, which only the operators do.
        is_converted: whether a caller's tensors, or the results, are converted.
        is_direct: whether neither tensors nor results are converted or copied, and nothing is recorded.
    """

    def __init__(
        self,
        key: CallKey,
        gradient: GradientSource,
        routine: Routine,
        paces: Paces,
        captures: Captures,
        runtimes: Sequence[Callable[[], Any]],
        *,
        is_recorded: bool,
    ) -> None:
        """Build the program of a key.

        Args:
            key: of the calls.
            gradient: the source of their gradient.
            routine: the forward pass.
            paces: the measured times of the op's kernels.
            captures: captures the Python values and fields that the op uses.
            runtimes: functions that return the current state of each engine.
            is_recorded: see the attribute.
        """
        signature = key.signature
        self.key = key
        self.signature = signature
        self._gradient_source = gradient
        self.active = key.active
        self.names = signature.all_arrays
        self.inputs = len(signature.arrays)
        self.outputs = slice(self.inputs, self.inputs + len(signature.outputs))
        self.is_recorded = is_recorded
        self.is_converted = not key.conversion.is_identity
        self.is_direct = key.is_ordered and not (self.is_converted or is_recorded)
        pairs = tuple(enumerate(signature.outputs))
        moving = key.floats & frozenset(signature.differentiable_outputs)
        self.steady_outputs = tuple(place for place, name in pairs if name not in moving)
        self.is_single = len(pairs) == 1 and not self.steady_outputs
        self.known_runners: dict[tuple[bool, ...], Runner] = {}
        self.solve = key.sizing.solve
        self._runtimes = tuple(zip(runtimes, key.engines, strict=True))
        self._captures = captures
        # Set by the first call that may have a gradient.
        self._looks: tuple[Look, ...] | None = None
        self._is_capturing = False
        self._moving = tuple((place, name) for place, name in pairs if name in moving)
        self._paces = paces
        self._routine = routine
        self._forward = Runner(lambda: routine, key, paces)
        self.makes = routine.makes
        self._active_by_needs: dict[tuple[bool, ...], frozenset[str]] = {}
        self._gradients: dict[frozenset[str], PassesForGradient] = {}
        self._backward: dict[Wish, Runner] = {}
        # Filled by `_prepared_passes.Stepping`.
        self.prepared: dict[Any, Any] = {}

    @lazy
    def reverse(self) -> ReverseAt:
        """Return the source of its calls' gradient."""
        return self._gradient_source.reverse.specialize(self.key)

    def is_current(self) -> bool:
        """Return True if no engine was started again since this program was made."""
        for runtime, before in self._runtimes:  # noqa: SIM110  # asked at every call: a generator costs more
            if runtime() is not before:
                return False
        return True

    def select_active(self, needs: tuple[bool, ...]) -> frozenset[str]:
        """Return the inputs that need a gradient, from one flag for each input."""
        active = self._active_by_needs.get(needs)
        if active is None:
            pairs = zip(self.signature.arrays, needs, strict=True)
            dtypes = self.key.dtypes
            active = frozenset(name for name, needed in pairs if needed and dtypes[name].is_floating_point)
            self._active_by_needs[needs] = active
        return active

    def forward(self, inputs: Sequence[torch.Tensor], numbers: Numbers, scalars: Scalars) -> tuple[Any, ...]:
        """Run the kernels. Return all arrays: inputs as given, then outputs, then scratch."""
        return self._forward.find(numbers, scalars)(inputs, (), numbers, scalars)

    def capture(self, templates: Mapping[str, Any]) -> CapturedValues | None:
        """Capture the values that a call depends on besides its arguments; None if there are none that may change."""
        looks = self._looks
        if looks is None:
            looks = self._looks = self._captures.find_looks(self.key.fingerprints)
            self._is_capturing = self._captures.is_needed(templates)
        if not self._is_capturing:
            return None
        contents = tuple([look.contents() for look in looks]) if looks else ()
        return CapturedValues(self._captures, templates, self.key.fingerprints, contents)

    @lazy
    def mark(self) -> torch.Tensor:
        """Return the number of the Python values of its calls as a tensor, which is saved with their tensors."""
        return torch.tensor(self._captures.number(self.key.fingerprints), device="cpu")

    @property
    def runners(self) -> Iterator[tuple[str, Runner]]:
        """The runners of all passes that calls have asked for so far, each with a description of the pass."""
        yield "forward", self._forward
        for active, passes in self._gradients.items():
            if passes.has_results:
                yield f"forward for a gradient in {', '.join(sorted(active))}", passes.forward
        for wish, runner in self._backward.items():
            words = " from checkpoints" if wish.has_checkpoints else ""
            yield f"backward for {', '.join(sorted(wish.active))}{words}", runner

    def __str__(self) -> str:
        """Return the key, and the actions of each pass that calls have asked for so far."""
        lines = [f"program of `{self.signature.op}` {self.key}"]
        for words, runner in self.runners:
            lines += [f"  {words}:", *(f"    {line}" for line in runner.threads.parallel.describe(self.key))]
        return "\n".join(lines)

    # Backward -----------------------------------------------------------------------------
    def passes(self, active: frozenset[str]) -> PassesForGradient:
        """Return how calls run if these inputs want a gradient."""
        return self._gradients.get(active) or self._find_passes(active)

    @lazy
    def own_passes(self) -> PassesForGradient:
        """Return how calls run if all inputs that require a gradient want one."""
        return self.passes(self.active)

    def _find_passes(self, active: frozenset[str]) -> PassesForGradient:
        with COMPILING:
            self.reverse.check(active)
            wanted = active & self.key.floats
            read = self.reverse.find_reads(wanted)
            places = [(place, name) for place, name in enumerate(self.names) if name in read]
            # The backward pass is compiled in the forward pass in two cases. If a Python value changed in between, it
            # would be another kernel. And if a gradient stack would be too small, which crashes the process, the call
            # must raise before it runs.
            is_early = any(self.key.fingerprints) or self.reverse.needs_stacks(active)
            kept = self.reverse.forward_with_results(self.key, wanted, self.makes)
            runner = self._forward
            # Saved inputs must keep their values.
            if any(isinstance(one, Take) and one.of in read for one in self._routine.actions):
                copying = self._routine.copying(read)
                runner = Runner(lambda: copying, self.key, self._paces)
            if kept is not None:
                routine = kept.routine
                runner = Runner(lambda: routine, self.key, self._paces)
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
        """Compile the backward pass with the current Python values. Raise before any launch if it is refused."""
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
        """Return the runner of the backward pass for the `active` inputs, from the `given` outputs or from all."""
        runner = self._known_runner(active, given, has_results=has_results)
        if runner is not None:
            return runner
        stacks = self._find_stack_depths(active, numbers, scalars)
        return self._find_backward(backward.Wish(active, given, stacks, has_results=has_results))

    def _known_runner(
        self, active: frozenset[str], given: frozenset[str] | None, *, has_results: bool
    ) -> Runner | None:
        """Return the runner of such a backward pass if there was one before.

        Return None if the depths of gradient stacks depend on the call.
        """
        # A tuple equals a `Wish` with these values, and a `Wish` would take half a microsecond to make.
        return self._backward.get((active, given, (), False, False, has_results))  # type: ignore[call-overload]

    def note_runner(self, needs: tuple[bool, ...], active: frozenset[str], *, has_results: bool) -> None:
        """Note the runner of a backward pass in `known_runners`, if like passes can use it without further checks."""
        runner = self._known_runner(active, None, has_results=has_results)
        # If there are several outputs, some may have no cotangent.
        if runner is not None and self.is_single and not runner.longest_tape:
            self.known_runners[needs] = runner

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
        """Run the backward pass; from checkpoints if its tapes would be too long."""
        runner = self._backward_runner(active, given, numbers, scalars, has_results)
        result = runner.find(numbers, scalars)(saved, cotangents, numbers, scalars)
        # An integer is the bytes of tapes that the run would take (`PassWriter`). It stopped before it launched
        # anything that changes memory of the call, so it can be run again another way.
        if type(result) is not int:
            return result
        runner.longest_tape = max(runner.longest_tape, result)
        short = self._find_backward(backward.Wish(active, given, has_checkpoints=True))
        return short.find(numbers, scalars)(saved, cotangents, numbers, scalars)

    def _find_stack_depths(self, active: frozenset[str], numbers: Numbers, scalars: Scalars) -> tuple[int, ...]:
        """Return the depths of the gradient stacks that an engine's reverse kernels need."""
        if not self.reverse.needs_stacks(active):
            return ()
        key = self.key
        shapes = {name: key.sizing.evaluate(name, numbers)[name in key.batched_arrays :] for name in self.names}
        return self.reverse.find_stack_depths(active, shapes, {**scalars, **key.templates})

    def _find_backward(self, wish: Wish) -> Runner:
        with COMPILING:
            if wish not in self._backward:
                # The function names no `self`: a program that holds itself would keep its buffers until Python's
                # garbage collector runs.
                reverse, key = self.reverse, self.key
                self._backward[wish] = Runner(lambda: reverse.backward(key, wish), key, self._paces)
            return self._backward[wish]

    # Prepared passes, which `_prepared_passes` makes of routines --------------------------------------
    def is_serial(self, numbers: Numbers, scalars: Scalars) -> bool:
        """Return True if a launch of the forward pass of such a call uses one thread."""
        return any(self._forward.threads.choose(numbers, scalars))

    def note_pace(self, seconds: float, numbers: Numbers, scalars: Scalars) -> None:
        """Note the measured time of a whole forward pass for each group of its launches that use one thread."""
        threads = self._forward.threads
        counted = zip(threads.groups, threads.choose(numbers, scalars), threads.count(numbers, scalars), strict=True)
        for group, is_serial, operations in counted:
            if is_serial:
                group.pace.note(seconds, operations)

    def forward_routine(self, numbers: Numbers, scalars: Scalars) -> Routine:
        """Return the routine of the forward pass of a call with these sizes and scalars."""
        return self._forward.routine(self._forward.threads.choose(numbers, scalars), numbers, scalars)

    def backward_routine(
        self, active: frozenset[str], given: frozenset[str], numbers: Numbers, scalars: Scalars
    ) -> Routine:
        """Return the routine of the backward pass for `active` inputs, from the outputs that are `given` cotangents.

        It adds to gradients that exist already. Its launches are not timed: they use several threads if all launches of
        the forward pass do.
        """
        groups: tuple[frozenset[str] | None, ...] = (None,)
        if given < frozenset(name for _, name in self._moving):
            groups = self.reverse.group_outputs(active & self.key.floats, given)
        group = groups[0] if len(groups) == 1 else None
        runner = self._find_backward(
            backward.Wish(active, group, self._find_stack_depths(active, numbers, scalars), True)
        )
        serial = runner.threads.choose(numbers, scalars)
        serial = serial if self.is_serial(numbers, scalars) else tuple(False for _ in serial)
        return runner.routine(serial, numbers, scalars)

    def backward(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        active: frozenset[str],
        numbers: Numbers,
        scalars: Scalars,
        has_results: bool = False,
    ) -> Sequence[torch.Tensor | None]:
        """Run the backward pass. Return a gradient for each input; None for those that are not `active`.

        `has_results` says that `saved` includes what the forward pass kept of loops, for exactly these active inputs.
        """
        moving = self._moving
        # Nearly every call has a cotangent for each output. A list is faster than a generator here.
        if len(moving) < 2 or all([cotangents[number] is not None for number, _ in moving]):  # noqa: C419
            return self._run_backward(saved, cotangents, active, None, numbers, scalars, has_results)
        given = frozenset([name for number, name in moving if cotangents[number] is not None])
        rows = []
        for group in self.reverse.group_outputs(active & self.key.floats, given):
            pairs = zip(self.signature.outputs, cotangents, strict=True)
            alone = [cotangent if name in (group or given) else None for name, cotangent in pairs]
            rows.append(self._run_backward(saved, alone, active, group, numbers, scalars))
        return [_add_gradients(column) for column in zip(*rows, strict=True)]


class Runner:
    """Runs a routine. Its parts are made when calls first need them.

    Args:
        make: returns the routine, all of whose launches use several threads.
        key: of the calls.
        paces: the measured times of the op's kernels.

    Attributes:
        longest_tape: the most bytes of tape that a call needed beyond the limit; 0 if none did.
    """

    def __init__(self, make: Callable[[], Routine], key: CallKey, paces: Paces) -> None:
        self._make, self._key, self._paces = make, key, paces
        self._threads: Threads | None = None
        self._timer = PreparationTimer(key.signature.op, key.signature.stages[0].engine)
        self._routines: dict[Serial, Routine] = {}
        self._passes: dict[Serial, Pass] = {}
        self._first_calls: dict[Serial, tuple[Numbers, Scalars]] = {}
        self.longest_tape = 0

    @property
    def choices(self) -> dict[Serial, tuple[tuple[int, bool], ...]]:
        """Each choice of threads made so far, with facts about the first call that led to it.

        A choice says of each group of launches whether it runs on one thread. The facts are, for each group, its number
        of operations, and whether several threads would lose more by atomics than they gain.
        """
        threads = self.threads
        return {
            serial: tuple(zip(threads.count(*call), threads.has_dear_atomics(*call), strict=True))
            for serial, call in self._first_calls.items()
        }

    @property
    def threads(self) -> Threads:
        """The chooser of how many threads each launch uses."""
        if self._threads is None:
            with COMPILING, self._timer:
                if self._threads is None:
                    self._threads = Threads(self._make(), self._key, self._paces)
        return self._threads

    def find(self, numbers: Numbers, scalars: Scalars) -> Pass:
        """Return the function that runs a call with these sizes and scalars."""
        threads = self._threads or self.threads
        serial = threads.choose(numbers, scalars)
        return self._passes.get(serial) or self._make_pass(serial, numbers, scalars)

    def _make_pass(self, serial: Serial, numbers: Numbers, scalars: Scalars) -> Pass:
        signature = self._key.signature
        if has_streams(self._key.device.type):
            words = "its kernels are compiled at the first call of a kind"
            tracing.refuse_capture(f"op `{signature.op}`", self._key.device, words, tracing.WARM_UP)
        with COMPILING, self._timer:
            if serial not in self._passes:
                routine = self.routine(serial, numbers, scalars)
                # Timed by launch, not by pass: each launch would wake the thread pool, so a thousand short ones gain
                # nothing by it, even if they take long together. A deterministic op chooses between one thread and
                # several by its sizes alone: the results may differ in the last digit.
                is_fixed = signature.is_deterministic
                timers = {} if is_fixed else self.threads.make_timers(serial, routine)
                with show_preparation(signature.op, len({*routine.launches})):
                    self._passes[serial] = PassWriter(routine, self._key, timers).function()
            return self._passes[serial]

    def routine(self, serial: Serial, numbers: Numbers, scalars: Scalars) -> Routine:
        """Return the routine with this choice of threads, which was made for a call with these sizes and scalars."""
        with COMPILING:
            if serial not in self._routines:
                self._first_calls[serial] = numbers, dict(scalars)
                self._routines[serial] = self.threads.routine(serial)
            return self._routines[serial]


def _add_gradients(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """Return the sum of one input's gradients, None if there are none."""
    present = [part for part in parts if part is not None]
    if len(present) < 2:
        return present[0] if present else None
    return torch.stack(present).sum(0)
