"""Executor: turns a routine into a Python function; to call the function is to run the pass.

A routine does the same for all calls with one key, so it is written once as straight code: unpack the call's sizes,
allocate memory, launch. So calls with new sizes need no new code, and no call repeats a decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch

from .. import calls, engines, tracing
from .._config import config
from .._preparation import note_step
from ..compiling import Alignment
from ..engines import DTYPES, MOST_ELEMENTS, Engine, has_streams, make_held_launch
from ..ir import nodes
from ..passes import formula_text
from ..passes.adjoint import Copy
from ..spec import Size, Symbol
from ._buffers import LOWEST_ADDRESS, check_reach, copy_private, ensure_memory, make_adjoint
from ._key import CallKey
from ._memory import LARGE, LONG, as_new_tensor, make_recycled_copy
from ._pass_text import Pass, PassText
from ._routine import Cotangent, Given, Input, Make, Result, Routine, RoutineLaunch, Saved, Take, Tapes
from ._signature import check_element
from ._steps import Entry, StageLaunch, Step
from ._threads import LaunchTimer

HELD_FROM = 4
"""If a routine launches a kernel at least this often, its launches share one launch context, in which only arguments
that differ are set again. Each further launch takes 1 us in Quadrants instead of 3, 4 us in Taichi instead of 12 (five
arrays, on a CPU); the first ones take 2 us more."""


@dataclass
class HeldKernel:
    """A kernel of a pass whose launches share a launch context.

    Attributes:
        name: the variable of the context.
        entries: the code of its current array arguments.
    """

    name: str
    entries: list[str]


class Waiting(NamedTuple):
    """A launch that is queued to be written together with others, and the timer that measures it, if any."""

    step: Step
    watch: LaunchTimer | None


def _note_unwritten(engine: Engine, memory: torch.Tensor) -> torch.Tensor:
    return engines.track_writes(memory) if engine.checks_unwritten else memory


class PassWriter(PassText):
    """Turns a routine into a Python function (`function`).

    If the routine has a version with shorter tapes, and with `may_shorten`, a run that needs more bytes of tape than
    `config().tape_limit` stops before it allocates them, and returns their number. It has changed nothing by then.

    Args:
        routine: what the function does.
        key: of the calls.
        timers: for launches on one thread, what measures them.
        alignment: of which memory the function may ask that it is aligned for machine vectors.
    """

    may_shorten = True

    def __init__(
        self,
        routine: Routine,
        key: CallKey,
        timers: Mapping[RoutineLaunch, LaunchTimer],
        alignment: Alignment = Alignment.ALL,
    ) -> None:
        super().__init__(key.signature.op, key.device)
        self.recycles = key.signature.recycles_memory
        self.results = {one.name for one in routine.results if one is not None}
        self.routine = routine
        self.key = key
        self.timers = timers
        self.alignment = Alignment.NONE if routine.is_looped else alignment
        self.is_inside = False
        self.numbers: dict[str, str] = {}
        self.group: list[Waiting] = []
        self.counts: Counter[Any] = Counter()
        self.held: dict[Any, HeldKernel] = {}
        self.aligned: dict[str, int] = {}

    # The whole --------------------------------------------------------------------------------
    def function(self) -> Pass:
        """Write the whole routine as a Python function, and compile it."""
        for one in self.routine.given:
            self.take(one)
        begin = len(self.lines)
        if self.may_shorten and self.routine.has_long_tapes:
            self.add("taped = 0")
        for one in self.routine.makes:
            self.make(one)
        self.run_actions()
        results = "".join(f"{self.result(one)}, " for one in self.routine.results)
        self.add(f"return ({results})")
        head = [*self.unpack(), *self.lines[:begin], *self.guard_alignment()]
        text = "\n".join(["def run(inputs, cotangents, numbers, scalars):", *head, *self.lines[begin:], ""])
        return self.compile(text)

    def unpack(self) -> list[str]:
        """Write the lines that unpack the numbers of sizes and check that no array has too many elements."""
        sizes = "".join(f"{Symbol(place)}, " for place in range(self.key.sizing.symbols))
        check = self.bind(partial(check_reach, self.key.signature.op, self.key.sizing), "check_reach")
        lines = [f"    {sizes}elements, = numbers", f"    if elements > {MOST_ELEMENTS}: {check}(numbers)"]
        # No dtype has more than 8 bytes, so no array of a call with fewer elements is large.
        if self.key.device.type != "cpu":
            return lines
        return [*lines, f"    is_large = elements >= {LARGE // 8}", f"    is_long = elements >= {LONG}"]

    def guard_alignment(self) -> list[str]:
        """Write the check that runs another version if memory is not aligned for the machine vectors of this one."""
        given = {one.name for one in self.routine.given}
        # Memory that is allocated here begins at a multiple of 64 bytes, as all of torch's on CPUs.
        taken = {one.name: one.of for one in self.routine.actions if isinstance(one, Take)}
        sizes = {taken.get(name, name): size for name, size in self.aligned.items()}
        checks = [f"{self.pointer(name)} % {size}" for name, size in sizes.items() if name in given]
        if not checks:
            return []
        run: list[Pass] = []
        # What is only read may begin anywhere while vectors are still stored whole to what is allocated here.
        alignment = Alignment.CHANGED if self.alignment is Alignment.ALL else Alignment.NONE

        def run_unaligned(*arguments: Any) -> Any:
            if not run:
                run.append(PassWriter(self.routine, self.key, self.timers, alignment).function())
            return run[0](*arguments)

        call = f"{self.bind(run_unaligned, 'run_unaligned')}(inputs, cotangents, numbers, scalars)"
        return [f"    if {' or '.join(checks)}: return {call}"]

    def result(self, one: Result | None) -> str:
        if one is None:
            return "None"
        return self.memory(one.name) + (".sum(0)" if one.is_summed else "")

    # Memory -----------------------------------------------------------------------------------
    def whole(self, name: str) -> tuple[str, ...]:
        """Return the sizes of an array of the call, or of a generated kernel, with its batch."""
        shape: tuple[Size, ...] = self.key.sizing.shapes.get(name, ())
        assert name in self.key.sizing.shapes or not self.routine.arrays[name].rank, name
        return tuple(map(str, shape))

    def take(self, one: Given) -> None:
        """Write the line that takes memory which a run is given."""
        dtype = self.routine.dtype(self.key, one.like)
        if isinstance(one, Saved) and one.name not in self.key.sizing.shapes:
            # a value that the forward pass saved for this pass alone
            self.put(one.name, f"inputs[{one.name!r}]", (f"inputs[{one.name!r}].numel()",), dtype)
            return
        shape = self.whole(one.like)
        if isinstance(one, Cotangent):
            self.take_cotangent(one, shape, dtype)
            return
        match one:
            case Input():
                value = f"inputs[{one.place}]"
            case Saved():
                value = f"inputs[{one.name!r}]"
                value = f"{self.bind(copy_private, 'copy_private')}({value})" if one.is_copied else value
        self.put(one.name, value, shape, dtype)
        memory, pointer = self.memory(one.name), self.pointer(one.name)
        what = f"tensor `{one.like}` of op `{self.op}`"
        check = f"{self.bind(ensure_memory, 'ensure_memory')}({memory}, {what!r})"
        self.add(f"if {pointer} < {LOWEST_ADDRESS}: {memory} = {check}; {pointer} = {memory}.data_ptr()")

    def take_cotangent(self, one: Cotangent, shape: tuple[str, ...], dtype: torch.dtype) -> None:
        """Write the line that takes the memory of an output's adjoint.

        It is the cotangent's own if its elements are in order and nothing writes to it; zeros if there is no cotangent.
        """
        given = self.fresh("cotangent")
        self.add(f"{given} = cotangents[{one.number}]")
        own = f"{self.bind(make_adjoint, 'make_adjoint')}({given}, {one.is_copied})"
        if not one.is_copied:
            address = f"{given}.data_ptr() >= {LOWEST_ADDRESS}"
            own = f"{given} if {given}.is_contiguous() and not {given}.is_neg() and {address} else {own}"
        self.put(one.name, f"{self.create(shape, dtype, is_zero=True)} if {given} is None else {own}", shape, dtype)

    def make(self, one: Make) -> None:
        """Write the line that allocates memory."""
        known = one.like in self.shapes and one.like not in self.key.sizing.shapes
        shape = self.shapes[one.like] if known else self.whole(one.like)
        dtype = self.dtypes[one.like] if known else self.routine.dtype(self.key, one.like)
        dtype = DTYPES[one.type] if one.type else dtype
        if one.is_wide:
            shape = (str(self.key.sizing.batch), *shape)
        elif self.is_inside and not known and one.like in self.key.batched_arrays:
            shape = shape[1:]
        # Callers may keep what a pass returns.
        value = self.create(shape, dtype, is_zero=one.is_zero, is_own=one.name not in self.results)
        engine = self.key.signature.stages[0].engine
        if not one.is_zero and engine.runs_source and one.name in self.key.signature.items:
            value = f"{self.bind(partial(_note_unwritten, engine), 'note_unwritten')}({value})"
        self.put(one.name, value, shape, dtype)

    # What it does -----------------------------------------------------------------------------
    def run_actions(self) -> None:
        """Write all actions; in a loop over the samples of a batch if these run one by one."""
        if not self.routine.is_looped:
            self.act()
            return
        whole = dict(self.places), dict(self.shapes)
        self.add(f"for sample in range({self.key.sizing.batch}):")
        self.indent += "    "
        self.is_inside = True
        for name in list(self.places):
            if self.is_batched(name):
                self.put(name, f"{self.memory(name)}[sample]", self.shapes[name][1:], self.dtypes[name])
        self.act()
        self.indent = self.indent[4:]
        self.places, self.shapes = whole

    def is_batched(self, name: str) -> bool:
        """Return True if memory that exists before the first action has a batch dimension."""
        own = {one.name: one.like for one in (*self.routine.given, *self.routine.makes)}
        while own.get(name, name) != name:
            name = own[name]
        return name in self.key.batched_arrays

    def act(self) -> None:
        steps = {
            place: self.compile_launch(action)
            for place, action in enumerate(self.routine.in_order)
            if isinstance(action, RoutineLaunch)
        }
        self.counts = Counter(step.launch for step in steps.values())
        for place, action in enumerate(self.routine.in_order):
            match action:
                case Make():
                    self.flush()
                    self.make(action)
                case Copy(name, of):
                    self.flush()
                    self.put(name, self.clone(of), self.shapes[of], self.dtypes[of])
                case Take(name, of):
                    self.flush()
                    own = f"{self.bind(as_new_tensor, 'as_new_tensor')}({self.memory(of)})"
                    self.put(name, own, self.shapes[of], self.dtypes[of])
                case Tapes():
                    self.flush()
                    self.reserve(action)
                case RoutineLaunch():
                    self.wait(action, steps[place])
        self.flush()

    def clone(self, of: str) -> str:
        """Return the code that copies memory."""
        if not self.recycles:
            return f"{self.memory(of)}.clone()"
        return f"{self.bind(make_recycled_copy, 'make_recycled_copy')}({self.memory(of)})"

    def compile_launch(self, launch: RoutineLaunch) -> Step:
        note_step(launch.name)
        step = launch.step(self.key, self.alignment)
        self.aligned |= {one.memory: one.vector_size for one in step.entries if one.vector_size}
        return step

    # Launches ---------------------------------------------------------------------------------
    def wait(self, launch: RoutineLaunch, step: Step) -> None:
        """Add a launch to the queue, so that it is written together with those that follow."""
        self.group.append(Waiting(step, self.timers.get(launch)))

    def take_group(self) -> list[Waiting]:
        """Take all launches from the queue and return them. Write the checks of their vectors' sizes."""
        group, self.group = self.group, []
        self.check_elements([one.step for one in group])
        return group

    def flush(self) -> None:
        """Write the queued launches: on a GPU in order with torch's stream, on a CPU timed if they use one thread."""
        group = self.take_group()
        if not group:
            return
        if has_streams(self.key.device.type):
            self.launch_on_streams([one.step for one in group])
            return
        timed = set[LaunchTimer]()
        for watch, waiting in groupby(group, key=lambda one: one.watch):
            steps = [one.step for one in waiting]
            # One measurement of each kernel is enough.
            if watch is None or watch in timed:
                for step in steps:
                    self.launch(step)
            else:
                timed.add(watch)
                self.launch_watched(steps, watch)

    def launch_on_streams(self, steps: Sequence[Step]) -> None:
        """Write successive launches in order with torch's current stream.

        Where all is on the legacy default stream, this asks torch for nothing but the current stream's handle.
        """
        own = (one.stage for one in self.routine.launches if isinstance(one, StageLaunch))
        uses_fields = any(one.baked_values.uses_fields for one in (*self.key.signature.firsts, *own))
        launches = [one.launch for one in steps]
        orders = tracing.choose_orders(f"op `{self.op}`", self.key.device, launches, uses_fields=uses_fields)
        for order, pairs in groupby(zip(orders, steps, strict=True), key=lambda pair: pair[0]):
            current = self.bind(tracing.find_current_stream, "find_current_stream")
            name, program = self.bind(order, "order"), self.bind(order.program, "program")
            self.add(f"with {self.bind(order.program.lock, 'lock')}:")
            self.add(f"    stream = {current}({self.key.device.index or 0})")
            self.add(f"    if stream or {program}.last: {name}.begin(stream)")
            self.add("    try:")
            self.indent += " " * 8
            for _, step in pairs:
                self.launch(step)
            self.indent = self.indent[8:]
            self.add("    finally:")
            self.add(f"        if stream: {name}.end()")

    def launch_watched(self, steps: Sequence[Step], watch: LaunchTimer) -> None:
        """Write successive launches on one thread, and code that measures how long they take."""
        pace, note = self.bind(watch.pace, "pace"), self.bind(watch.note, "note")
        # Read once: another thread may change it.
        self.add(f"clock = {pace}.clock")
        self.add("begin = clock()")
        for step in steps:
            self.launch(step)
        samples = [str(self.key.sizing.batch) if is_split(step) else "1" for step in steps]
        count = str(len(steps)) if {*samples} == {"1"} else f"max({' + '.join(samples)}, 1)"
        launches = self.bind([step.launch for step in steps], "launches")
        self.add(f"seconds = (clock() - begin) / {count}")
        slow = f"seconds > {watch.pace.limit:.6g} or {pace}.slow_in_a_row"
        self.add(f"if {slow}: {note}(seconds, numbers, scalars, {launches})")

    def check_elements(self, steps: Sequence[Step]) -> None:
        """Write checks that the last sizes of arrays are those of the vectors in generated kernels."""
        for step in steps:
            for parameter, memory in step.elements:
                check = partial(check_element, self.key.signature.op, parameter, "")
                sample = self.whole(memory)[memory in self.key.batched_arrays :]
                self.add(f"{self.bind(check, 'check')}({self.tuple_of(sample)})")

    def launch(self, step: Step) -> None:
        """Write a launch; if the kernel takes one sample at a time, in a loop over the samples."""
        if self.can_hold(step):
            self.launch_held(step)
            return
        arguments = self.arguments(step)
        call = f"{self.bind(step.launch, 'launch')}({arguments})"
        self.add(f"for one in range({self.key.sizing.batch}): {call}" if is_split(step) else call)

    def arguments(self, step: Step) -> str:
        """Return the code of a launch's arguments: its arrays, then its scalars."""
        entries = self.tuple_of([self.entry(one) for one in step.entries])
        scalars = [f"({how!r}, {self.constant(slot)}, {self.scalar(name)})" for how, slot, name in step.scalars]
        return f"{entries}, {self.tuple_of(scalars)}"

    def can_hold(self, step: Step) -> bool:
        """Return True if the launches of this kernel can share a launch context."""
        # On a GPU launches return at once, so an earlier one may still be reading the context.
        is_read_at_once = not has_streams(self.key.device.type)
        return self.counts[step.launch] >= HELD_FROM and not is_split(step) and is_read_at_once

    def launch_held(self, step: Step) -> None:
        """Write a launch in a shared context. Set only arguments that differ from those of the launch before."""
        entries = [self.entry(one) for one in step.entries]
        held = self.held.get(step.launch)
        if held is None:
            held = self.held[step.launch] = HeldKernel(self.fresh("held"), entries)
            kept, launch = self.bind(make_held_launch, "hold"), self.bind(step.launch, "launch")
            self.add(f"{held.name} = {kept}({launch}, {self.tuple_of(entries)}, ())")
            self.add(f"{held.name}_put, {held.name}_run = {held.name}.put, {held.name}.run")
            for how in sorted({how for how, _, _ in step.scalars}):
                self.add(f"{held.name}_{how} = {held.name}.setter({how!r})")
        for entry, before in zip(entries, held.entries, strict=True):
            if entry != before:
                self.add(f"{held.name}_put{entry}")
        held.entries = entries
        for how, slot, name in step.scalars:
            self.add(f"{held.name}_{how}({self.constant(slot)}, {self.scalar(name)})")
        self.add(f"{held.name}_run()")

    def entry(self, one: Entry) -> str:
        shape = self.size(one.like)
        if one.is_split:
            shape = shape[1:]
        nbytes = " * ".join([str(one.itemsize), *shape])
        dims = self.tuple_of(shape[: len(shape) - one.inner])
        address = self.address(one.memory, nbytes if one.is_split else "")
        gradient = self.address(one.gradient, nbytes if one.is_split else "")
        return f"({self.constant(one.slot)}, {address}, {nbytes}, {dims}, {gradient})"

    def address(self, memory: str, stride: str) -> str:
        if not memory:
            return "0"
        return f"{self.pointer(memory)} + one * {stride}" if stride else self.pointer(memory)

    def scalar(self, name: str) -> str:
        return self.numbers.get(name, f"scalars[{name!r}]")

    # Tapes ------------------------------------------------------------------------------------
    def reserve(self, tapes: Tapes) -> None:
        """Write the code that allocates a task's tapes, and the launches that count their entries."""

        def launch(one: RoutineLaunch) -> None:
            self.wait(one, self.compile_launch(one))
            self.flush()

        may_stop = self.may_shorten and self.routine.has_long_tapes
        limit = config().tape_limit if may_stop else None
        room = calls.TapeRoom(self.key.signature.op, self.key.device)
        self.numbers |= calls.TapeReservation(self, room, tapes, launch, self.formula, limit).write()

    def formula(self, expr: nodes.Expr, tapes: Tapes) -> str:
        """Return an IR formula of sizes and scalars as Python code."""

        def argument(name: str) -> str:
            return self.scalar(tapes.renamed.get(name, name))

        return formula_text(expr, lambda array, axis: self.size(array)[axis], argument)

    def size(self, array: str) -> tuple[str, ...]:
        """Return the sizes of an array as a launch sees it, also of an array that this pass does not touch."""
        if array in self.shapes:
            return self.shapes[array]
        is_part = self.routine.is_looped and array in self.key.batched_arrays
        return self.whole(array)[1:] if is_part else self.whole(array)


def is_split(step: Step) -> bool:
    """Return True if a kernel is launched once for each sample of a batch."""
    return any(one.is_split for one in step.entries)
