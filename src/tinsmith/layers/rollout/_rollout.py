"""Rollout: a Python loop over kernels that work on fields, as a differentiable function of tensors.

What the loop calls is recorded in each call, so that Python values may change; the kernels become one op on arrays in
the fields' places (`fields/_on_arrays.py`), made once for a sequence of kernels.
"""

from __future__ import annotations

import copy
import functools
import keyword
import weakref
from collections import namedtuple
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch

from ..._errors import (
    ArgumentError,
    CheckpointError,
    GradientError,
    KernelError,
    RegistrationError,
    nearest,
    refusal,
)
from ..._integers import read_integer
from ..._preparation import show_preparation
from ..._suggestions import suggest_options
from ..._tracebacks import hide_frames
from ..._user_warnings import warn
from ...calls import current_watch
from ...engines import Engine, FieldKey
from ...ir import NotCovered
from ...operation import OpOptions, Races
from ...tracing import is_plain, is_transformed
from .._pool import FIELDS_LOCK, RECORDED, make_field
from ..fields import (
    ArrayProgram,
    FieldCopies,
    Habits,
    Launch,
    LayerField,
    NoArray,
    Roles,
    Starts,
    break_graph,
    by_key,
    check_memory,
    check_once,
    fingerprints_of,
    place_field,
    refuse_generated,
    warn_of_sums,
    warn_of_unused_inputs,
    warn_of_unwritten_outputs,
)
from ._blocks import BlockLaunches, run_blocks
from ._dry_run import DryRun, KnownUses
from ._field_names import name_fields_for_user
from ._kernels import Call, Calls, Kernels
from ._read_number import ReadNumber
from ._recording import Block, Recording
from ._touched_memory import MemoryWatch, refuse_shared_memory
from ._writes import make_row_filler

FieldLike = Any
"""A field of either engine."""
Named = Mapping[str, FieldLike | tuple[FieldLike, int]]
"""Fields by names of arguments or results; `(x, t)` is `x[t]`, all elements whose first index is that."""
_HABITS = Habits(clears_outputs=None)
_SUMS_REMEDY = (
    "Clear it first in the function, `field.fill(0)`, or make it an input, which is filled in each call. "
    "An output that kernels only add to, and do not read, is cleared automatically."
)
_OVERLAP_REMEDY = "Leave one of them out. Several parts `(field, t)` of one field need different t."
MOST_PROGRAMS = 8
"""Sequences of kernels whose op is kept: a function whose loop has another length each time makes new ones."""


@suggest_options('ts.rollout(forward, inputs={"x": x}, outputs={"y": y})')
def rollout(forward: Callable[[], Any], inputs: Named, outputs: Named, *, races: Races = "check") -> Rollout:
    """Turn a Python loop over kernels that work on fields into a differentiable function of tensors.

    Each call of this function fills the input fields, runs the kernels that `forward` calls, and returns the content of
    the output fields. Gradients are generated from the kernels' source and use the values of the call, even if kernels
    overwrite fields. After a call, fields have the values that `forward` itself would leave in them.

    Args:
        forward: calls kernels, and may write fields from Python, but not read floats. It is called without arguments,
            once in each call; its return value is ignored. Kernels that return a value to it have no gradient.
        inputs: fields by the names of the function's arguments. `(x, 0)` is the part `x[0, ...]`.
        outputs: fields by the names of its results; `(x, -1)` is the last `x[t, ...]`. A field that kernels only add to
            starts at zero, as the loss of a tape does; fields that are not inputs start with what they hold.

        races: "check" refuses, at the first call, kernels whose parallel iterations certainly race, and warns of those
            that may; "allow" does not, as for `tinsmith.op`.

    Returns:
        A function of tensors, in the order of `inputs` or by name. It returns a tensor, or a named tuple.

    Raises:
        ArgumentError: `forward` is no function.
        RegistrationError: `inputs` or `outputs` is empty, the fields belong to several engines, two inputs fill the
            same elements of a field, or one field is a component or the gradient of another.

    A call raises GradientError if no gradient can be generated, or a number that a kernel returned goes into another
    one; and KernelError if `forward` reads a field of floats from Python, or uses a sparse field. After an error,
    fields hold what they held before the call.

    Example:
        >>> x, speed, loss = ti.field(ti.f32, (9, 4)), ti.field(ti.f32, ()), ti.field(ti.f32, ())
        >>> @ti.kernel
        ... def step(t: ti.i32):
        ...     for i in range(4):
        ...         x[t + 1, i] = x[t, i] + speed[None]
        >>> @ti.kernel
        ... def add_up(t: ti.i32):
        ...     for i in range(4):
        ...         loss[None] += x[t, i] ** 2
        >>> def forward():
        ...     for t in range(8):
        ...         step(t)
        ...     add_up(8)
        >>> run = ts.rollout(forward, {"start": (x, 0), "speed": speed}, {"loss": loss})
        >>> speed_now = torch.tensor(0.5, requires_grad=True)
        >>> run(torch.zeros(4), speed_now)
        tensor(64., grad_fn=<rollout forwardBackward>)
    """
    return Rollout(forward, inputs, outputs, races)


@dataclass(frozen=True)
class _Part:
    """A field among inputs or outputs, or the part of it at `index` of the first axis."""

    name: str
    one: LayerField
    index: int | None


class Rollout:
    """A Python loop over kernels, as a function of tensors. Made by `tinsmith.rollout`."""

    def __init__(self, forward: Callable[[], Any], inputs: Named, outputs: Named, races: Races = "check") -> None:
        if not callable(forward):
            rows = [("got", f"{type(forward).__name__} {forward!r:.60}")]
            remedy = "Pass the function itself, `ts.rollout(forward, ...)`, not what it returns, `forward()`."
            raise ArgumentError(refusal("ts.rollout takes a function that calls kernels", rows, remedy))
        self._forward = forward
        self.name = f"rollout {getattr(forward, '__name__', type(forward).__name__)}"
        sources, results = (_parts(self.name, side, given) for side, given in (("input", inputs), ("output", outputs)))
        self._engine: Engine = sources[0].one.engine
        if any(part.one.engine is not self._engine for part in (*sources, *results)):
            rows = [(part.name, part.one.engine.name) for part in (*sources, *results)]
            raise RegistrationError(
                refusal(
                    f"the fields of {self.name} belong to several engines", rows, "Make all of them with one engine."
                )
            )
        self._kernels = Kernels(self.name, self._engine, allows_races=OpOptions(races=races).races == "allow")
        self._begin: list[Call] = []
        for index in dict.fromkeys([part.index for part in sources]):
            filling = [part.one for part in sources if part.index in (None, index)]
            check_once(filling, "an input", self.name, _OVERLAP_REMEDY)
        self._sources = tuple([part.one for part in sources])
        check_memory(self.name, Roles(self._sources, tuple([part.one for part in results]), ()), ())
        filled = tuple([self._make_input_field(part) for part in sources])
        shown = {part.one.facts.key: part.one for part in results}
        self._roles = Roles(filled, tuple(shown.values()), ())
        self._shown = [(list(shown).index(part.one.facts.key), part.index) for part in results]
        self._results: Any = namedtuple("Results", [part.name for part in results])  # noqa: PYI024  # a user's names
        self._copies, self._known_uses = FieldCopies(self._engine), KnownUses()
        self._has_warned_of_state = False
        self._programs: dict[Any, ArrayProgram] = {}
        self._launches: dict[Calls, tuple[Launch, ...]] = {}
        # Integers among the arguments for which no index is known to be outside of its field.
        self._checked: weakref.WeakKeyDictionary[ArrayProgram, list[int]] = weakref.WeakKeyDictionary()

    def _make_input_field(self, part: _Part) -> LayerField:
        """Return the field that an input's tensor is copied into; for a part of a field, make one."""
        if part.index is None:
            return part.one
        facts = part.one.facts
        row = make_field(self._engine, facts.dtype, facts.shape[1:], facts.element)
        self._begin.append(self._kernels.write(make_row_filler, part.one.field, part.index, source=row))
        return place_field(row, part.name, None, False, self.name)

    # Running ----------------------------------------------------------------------------------
    def __call__(self, *tensors: torch.Tensor, **named: torch.Tensor) -> Any:
        """Run the loop on one tensor for each input, in order or by name.

        Return a tensor, or a named tuple of several.
        """
        names = [one.name for one in self._roles.filled]
        given = dict(zip(names, tensors, strict=False)) | named
        if len(tensors) + len(named) != len(names) or given.keys() != {*names}:
            raise _build_call_error(self.name, names, len(tensors), [*named])
        ordered = [given[name] for name in names]
        if torch.compiler.is_compiling():
            return break_graph(self._run)(*ordered)
        try:
            return self._run(*ordered)
        except Exception as error:
            hide_frames(error)
            raise

    def _run(self, *tensors: torch.Tensor) -> Any:
        with FIELDS_LOCK:
            RECORDED.refuse(self.name)
            for one in (*self._roles.filled, *self._roles.outputs):
                one.check_alive(self.name)
            self._engine.require_ready(self.name)
            memory = [one.to_memory(t, self.name) for one, t in zip(self._roles.filled, tensors, strict=True)]
            dry_run = self._make_dry_run(memory)
            try:
                results = self._record_and_run(memory, dry_run)
            except BaseException:
                if dry_run is not None:
                    dry_run.restore()
                raise
        shown = [results[place] if index is None else results[place][index] for place, index in self._shown]
        return shown[0] if len(shown) == 1 else self._results(*shown)

    def _record_and_run(self, memory: Sequence[torch.Tensor], dry_run: DryRun | None) -> Sequence[torch.Tensor]:
        """Return the values of the output fields. After an error, fields hold what a dry run left there."""
        with RECORDED.mark_recording(self.name):
            recording = Recording(self._kernels, dry_run)
            watch = MemoryWatch(recording)
            calls = (*self._begin, *recording.run(watch.watching(self._forward)))
            if watch.reads or watch.writes:
                sides = self._roles.filled, self._roles.outputs
                refuse_shared_memory(self.name, self._forward, watch, self._launch(calls), len(self._begin), *sides)
            differentiated = [*memory, *_list_held(calls)]
            blocks = recording.blocks() if recording.has_customs and _wants_gradient(differentiated) else []
        if len(blocks) > 1:
            if dry_run is not None:
                dry_run.restore()
            return self._run_blocks([blocks[0]._replace(calls=(*self._begin, *blocks[0].calls)), *blocks[1:]], memory)
        program, launches = self._find_program(calls, recording.read)
        self._check_gradient(program, launches, memory)
        self._check_numbers(calls, differentiated) if recording.read else None
        if dry_run is None:
            return program(launches, memory)
        # The first call of a program looks for values that it carries to the next.
        is_on_fields = program.on_carried is None and not program.clears and current_watch() is None
        if is_on_fields and not _wants_gradient(differentiated) and recording.run_rest():
            return self._copies.take(self._roles.outputs)
        results = program(launches, memory, dry_run.contents)
        dry_run.restore(program.filled_keys)
        return results

    def _make_dry_run(self, memory: Sequence[torch.Tensor]) -> DryRun | None:
        if not is_plain():
            return None
        filled = [*zip(self._roles.filled, memory, strict=True)]
        return DryRun(self._copies, self._known_uses, filled, self._launch(tuple(self._begin)))

    def _launch(self, calls: Calls) -> tuple[Launch, ...]:
        launches = self._launches.get(calls)
        if launches is None:
            launches = tuple([called.launch(arguments) for called, arguments in calls])
            # Arrays are copied in each call, and would live on here.
            if not any([one.bound.tensors for one in launches]):  # noqa: C419  # faster
                _keep(self._launches, calls, launches)
        return launches

    def _run_blocks(self, blocks: Sequence[Block], memory: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run calls that include functions with custom gradients. Return the values of the output fields."""
        given = [BlockLaunches(self._launch(block.calls), block.customs) for block in blocks]
        launches = [launch for block in given for launch in block.launches]
        check_memory(self.name, self._roles, launches)
        starts = Starts(self._roles, launches, _HABITS)
        return run_blocks(self.name, self._roles, given, memory, starts.fields_at_zero, self._make_block)

    def _make_block(
        self, roles: Roles, launches: tuple[Launch, ...], habits: Habits, active: Sequence[LayerField]
    ) -> ArrayProgram:
        key = (*[launch.kind for launch in launches], fingerprints_of(launches), *by_key(roles.filled))
        program = self._programs.get(key)
        if program is None:
            program = ArrayProgram(self.name, roles, launches, habits)
            _keep(self._programs, key, program)
        else:
            program.check_indices(launches)
        reason = program.refusal(launches, active) if active else None
        if reason is not None:
            raise refuse_generated(self.name, reason, launches)
        return program

    def _find_program(self, calls: Calls, read: Collection[int]) -> tuple[ArrayProgram, tuple[Launch, ...]]:
        """Return the program and the launches of a call. `read` are the parts of fields that Python has read."""
        launches = self._launch(calls)
        distinct = {called: launch for (called, _), launch in zip(calls, launches, strict=True)}
        numbers = [one for _, arguments in calls for one in arguments if isinstance(one, int)]
        sequence = tuple([called for called, _ in calls])
        outputs = by_key(self._roles.outputs)
        shown = frozenset([key for key, one in outputs.items() if any(part in read for part in one.facts.parts)])
        program = self._programs.get((sequence, shown, fingerprints_of(distinct.values())))
        if program is None:
            program = self._make(launches, shown)
            # A kernel that was looked into shows values that it did not show before.
            _keep(self._programs, (sequence, shown, fingerprints_of(distinct.values())), program)
            self._checked[program] = numbers
        elif self._checked[program] != numbers:
            program.check_indices(launches)
            self._checked[program] = numbers
        return program, launches

    def _make(self, launches: tuple[Launch, ...], read: Collection[FieldKey]) -> ArrayProgram:
        check_memory(self.name, self._roles, launches)
        starts = Starts(self._roles, launches, _HABITS)
        # An output that Python code got a value from is no plain sum, which would start at zero.
        grown = [one for one in starts.fields_at_zero if one.facts.key in read]
        sums = [*grown, *(one for one in starts.accumulators if starts.is_seen(one))]
        outputs = [replace(one, clears=False) if one in grown else one for one in self._roles.outputs]
        roles = Roles(self._roles.filled, tuple(outputs), ()) if grown else self._roles
        try:
            with show_preparation(self.name, len({launch.kind for launch in launches})):
                program = ArrayProgram(self.name, roles, launches, _HABITS)
        except NotCovered as reason:
            raise refuse_generated(self.name, reason, launches) from None
        except NoArray as reason:
            raise KernelError(str(reason)) from None
        # Only now: kernels that cannot run are refused, whatever there is to warn of.
        warn_of_sums(self.name, starts, sums, _SUMS_REMEDY)
        # Once for a rollout, and not again for a sequence of another length.
        if not self._programs:
            warn_of_unwritten_outputs(self.name, starts, launches)
            own = launches[len(self._begin) :]
            warn_of_unused_inputs(self.name, Starts(replace(self._roles, filled=self._sources), own, _HABITS))
        if not self._has_warned_of_state:
            program.on_carried = functools.partial(self._warn_of_state, launches, by_key(sums))
        return program

    def _warn_of_state(
        self, launches: Sequence[Launch], known: Collection[FieldKey], carried: Sequence[LayerField]
    ) -> None:
        """Warn of fields that carry values from call to call, but for those `known` to do so."""
        named = name_fields_for_user(self._forward, launches, [one for one in carried if one.facts.key not in known])
        if not named:
            return
        self._has_warned_of_state = True
        shown = ", ".join(f"`{name}`" for name, _ in named)
        words = f"{self.name} carries values from call to call in {shown}: "
        words += "called again with the same tensors, it would have returned something else"
        rows = [(name, str(one).removeprefix(one.name)) for name, one in named]
        remedy = "Make such a field an input, and an output to go on from there; or set it in the function before "
        remedy += "kernels read it, as by `field.fill(0)`."
        warn(refusal(words, rows, remedy))

    def _check_gradient(
        self, program: ArrayProgram, launches: tuple[Launch, ...], memory: Sequence[torch.Tensor]
    ) -> None:
        """Raise GradientError where one may be asked for, and cannot be generated."""
        is_any = is_transformed()
        if not (torch.is_grad_enabled() or is_any):
            return
        pairs = zip(self._roles.filled, memory, strict=True)
        active = tuple([one for one, t in pairs if (t.requires_grad or is_any) and one.may_have_gradient])
        reason = program.refusal(launches, active) if active else None
        if reason is not None:
            raise refuse_generated(self.name, reason, launches)

    def _check_numbers(self, calls: Calls, differentiated: Sequence[torch.Tensor]) -> None:
        """Raise GradientError where a number that a kernel returned goes into a kernel, and a gradient is wanted."""
        taking = next((one for one, given in calls if any(isinstance(value, ReadNumber) for value in given)), None)
        if taking is not None and _wants_gradient(differentiated):
            words = f"kernel `{taking.launcher.stage.name}` of {self.name} is given a number that a kernel returned"
            words += ", and no gradient goes through Python"
            remedy = "Let a kernel leave the number in a field; or pass `float(value)` to treat it as a constant."
            raise GradientError(refusal(words, [("at", taking.launcher.stage.source.place())], remedy))

    # Copying ------------------------------------------------------------------------------
    def __copy__(self) -> Rollout:
        twin = Rollout.__new__(Rollout)
        vars(twin).update(vars(self))
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Rollout:
        """Return a copy on the same fields. It calls the same function.

        If the function, or the object whose method it is, is being copied too, the copy calls that copy.
        """
        twin, forward = copy.copy(self), self._forward
        if isinstance(forward, MethodType):
            owner = memo.get(id(forward.__self__), forward.__self__)
            twin._forward = MethodType(forward.__func__, owner)
        else:
            twin._forward = memo.get(id(forward), forward)
        return twin

    def __getstate__(self) -> Any:
        words = f"{self.name} cannot be pickled: its fields are an engine's memory, and its kernels refer to them"
        remedy = "Save the tensors that it is called with, and make it again by ts.rollout."
        raise CheckpointError(refusal(words, remedy=remedy))

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, side)) for side in (self._roles.filled, self._roles.outputs))
        return f"<{self.name}: {inputs} -> {outputs}>"


def _build_call_error(rollout: str, names: Sequence[str], count: int, named: Sequence[str]) -> ArgumentError:
    """Build the error for a call with `count` tensors in order, and some by name, that are not one for each input."""
    unknown = next((name for name in named if name not in names), None)
    if unknown is not None:
        missing = [name for name in names[count:] if name not in named]
        guess = nearest(unknown, names) or (missing[0] if len(missing) == 1 else "")
        remedy = f"Did you mean `{guess}`?" if guess else f"Leave `{unknown}` out."
        words = f"{rollout} has no input `{unknown}`"
        return ArgumentError(refusal(words, [("inputs", ", ".join(names))], remedy))
    by_name = f", {', '.join(named)} by name" if named else ""
    rows = [("expected", ", ".join(names)), ("got", f"{count} in order{by_name}")]
    return ArgumentError(refusal(f"{rollout} takes one tensor for each input", rows, "Pass each input once."))


def _wants_gradient(memory: Sequence[torch.Tensor]) -> bool:
    return is_transformed() or (torch.is_grad_enabled() and any(one.requires_grad for one in memory))


def _list_held(calls: Calls) -> list[torch.Tensor]:
    """Return the tensors that kernels read as members of dataclasses."""
    held = [given[-len(one.launcher.held) :] for one, given in calls if one.launcher.held]
    return [array.value for given in held for array in given if isinstance(array.value, torch.Tensor)]


def _keep(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= MOST_PROGRAMS:
        del known[next(iter(known))]
    known[key] = value


def _parts(rollout: str, side: str, given: Named) -> list[_Part]:
    """Check inputs or outputs and describe their fields. Raises RegistrationError, ArgumentError, ShapeError."""
    if not isinstance(given, Mapping) or not given:
        words = f"{rollout} takes its {side}s as fields by name, at least one"
        raise RegistrationError(refusal(words, [("got", f"{given!r:.60}")], f"Pass {{'name': field}} as `{side}s`."))
    parts = []
    for name, one in given.items():
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            words = f"{side} `{name}` of {rollout} is not a valid name"
            remedy = "Use a Python identifier that does not begin with `_` and is no keyword."
            raise RegistrationError(refusal(words, remedy=remedy))
        field, index = one if isinstance(one, tuple) else (one, None)
        whole = place_field(field, name, None, False, rollout)
        parts.append(_Part(name, whole, None if index is None else _row(rollout, whole, index)))
    return parts


def _row(rollout: str, one: LayerField, index: Any) -> int:
    size, number = one.facts.shape[0] if one.facts.shape else 0, read_integer(index)
    if number is None or not -size <= number < size or any(one.facts.offset):
        words = f"`{one.name}` of {rollout} is given by an invalid index of its field"
        rows = [("field", str(one)), ("index", repr(index)), ("offset", str(one.facts.offset))]
        raise ArgumentError(
            refusal(words, rows, "Pass `(field, t)` with t on the field's first axis, which begins at 0.")
        )
    return number % size
