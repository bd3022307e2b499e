"""Prepared passes: forward or backward passes that run thousands of times on the same memory.

An ordinary pass allocates memory and fills launch contexts at every call. A prepared one is run once to record its
launches; then each run consists of these launches only, and arrays get new addresses only if these changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..calls import (
    BoundArguments,
    CallKey,
    Cotangent,
    Entry,
    Given,
    Make,
    PassWriter,
    Program,
    Result,
    Routine,
    Saved,
    Step,
    Take,
    Tapes,
    is_split,
    solve_numbers,
)
from ..calls.derived import find_recorded
from ..compiling import Alignment
from ..engines import HeldLaunch, Launch, make_held_launch
from ..passes.adjoint import Copy
from ..spec import Numbers
from ..tracing import is_plain
from ._op import Op

_ADDRESS, _GRADIENT = 1, 4
"""Positions in an `ArrayArgument`."""


class NotPrepared(Exception):  # not an error: the ordinary pass is used instead
    """The launches of a pass differ from call to call, so they cannot be prepared."""


class PreparedPass:
    """The recorded launches of one pass.

    Attributes:
        memory: all memory of the pass, by name.
    """

    def __init__(self) -> None:
        self.memory: dict[str, torch.Tensor] = {}
        self._alive: list[torch.Tensor] = []
        self._zeros: list[torch.Tensor] = []
        self._launches: list[HeldLaunch] = []
        self._uses: dict[str, list[tuple[HeldLaunch, list[Any], int]]] = {}

    def note_memory(self, name: str, memory: torch.Tensor) -> None:
        """Record memory under a name, and keep it alive as long as the pass."""
        self.memory[name] = memory
        self._alive.append(memory)

    def note_zero(self, memory: torch.Tensor) -> None:
        """Record memory that must be zeroed before each run."""
        self._zeros.append(memory)

    def note_launch(self, launch: Launch, entries: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Record a launch with its arguments. Raise NotPrepared if its arguments cannot be kept."""
        arrays = [[slot, address, nbytes, shape, gradient] for slot, _, address, nbytes, shape, _, gradient in entries]
        held = make_held_launch(launch, arrays, scalars)  # type: ignore[arg-type]
        if held is None:
            raise NotPrepared
        self._launches.append(held)
        for array, entry in zip(arrays, entries, strict=True):
            for name, place in ((entry[1], _ADDRESS), (entry[5], _GRADIENT)):
                if name:
                    self._uses.setdefault(name, []).append((held, array, place))

    def port(self, name: str) -> Callable[[int], None]:
        """Return a function that moves an array to another address; it does nothing if the address is
        the current one.
        """
        uses = self._uses.get(name, [])
        if len(uses) != 1:

            def move_all(address: int) -> None:
                for use in uses:
                    _move_array(*use, address)

            return move_all
        held, array, place = uses[0]
        put = held.put

        def move(address: int) -> None:
            if array[place] != address:
                array[place] = address
                put(*array)

        return move

    def run(self) -> None:
        """Zero the memory that must be zero, and run the launches."""
        for one in self._zeros:
            one.zero_()
        for held in self._launches:
            held.run()


def _move_array(held: HeldLaunch, array: list[Any], place: int, address: int) -> None:
    if array[place] != address:
        array[place] = address
        held.put(*array)


class _Writer(PassWriter):
    """Writes the code of a pass that records its launches instead of running them.

    In that code, `inputs` holds memory by name, and `cotangents` is the pass that is prepared.
    """

    may_shorten = False

    def __init__(self, routine: Routine, key: CallKey, provided: frozenset[str]) -> None:
        super().__init__(routine, key, {}, Alignment.NONE)
        self._provided = provided

    def put(self, name: str, value: str, shape: Sequence[str], dtype: torch.dtype) -> None:
        super().put(name, value, shape, dtype)
        self.add(f"cotangents.note_memory({name!r}, {self.memory(name)})")

    def take(self, one: Given) -> None:
        if isinstance(one, Saved) and one.is_copied:
            raise NotPrepared
        self._put_provided(one)

    def make(self, one: Make) -> None:
        if one.name in self._provided:
            self._put_provided(one)
            return
        super().make(one)
        if one.is_zero:
            self.add(f"cotangents.note_zero({self.memory(one.name)})")

    def _put_provided(self, one: Given | Make) -> None:
        dtype, shape = self.routine.dtype(self.key, one.like), self.whole(one.like)
        self.put(one.name, f"inputs[{one.name!r}]", shape, dtype)

    def flush(self) -> None:
        for one in self.take_group():
            self.launch(one.step)

    def launch(self, step: Step) -> None:
        if is_split(step):
            raise NotPrepared
        arguments = self.arguments(step)
        self.add(f"cotangents.note_launch({self.bind(step.launch, 'launch')}, {arguments})")

    def entry(self, one: Entry) -> str:
        shape = self.size(one.like)
        nbytes = " * ".join([str(one.itemsize), *shape])
        dims = self.tuple_of(shape[: len(shape) - one.inner])
        gradient = f"{one.gradient!r}, {self.address(one.gradient, '')}"
        return (
            f"({self.constant(one.slot)}, {one.memory!r}, {self.address(one.memory, '')}, {nbytes}, {dims}, {gradient})"
        )

    def result(self, one: Result | None) -> str:
        return "None"


class Backward(NamedTuple):
    """A backward pass before it is prepared.

    Attributes:
        routine: its actions.
        reads: arrays whose values it reads.
        cotangents: by output, the name of its cotangent's memory, and whether the pass writes to it.
        gradients: by input, the name of its gradient's memory, and whether that is summed over a batch.
    """

    routine: Routine
    reads: tuple[str, ...]
    cotangents: Mapping[str, tuple[str, bool]]
    gradients: Mapping[str, tuple[str, bool]]


class Stepping:
    """Calls of an op with the same sizes and scalar arguments, to be run many times.

    Attributes:
        program: the program of these calls.
        inputs, outputs, scratch: names of the op's arrays.
    """

    def __init__(self, program: Program, numbers: Numbers, scalars: Mapping[str, Any]) -> None:
        signature = program.signature
        self.program = program
        self.inputs, self.outputs, self.scratch = signature.arrays, signature.outputs, signature.scratch
        self.floats = program.key.floats
        self._numbers, self._scalars = numbers, scalars

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array, batch included."""
        return tuple(self.program.key.sizing.evaluate(name, self._numbers))

    def dtype(self, name: str) -> torch.dtype:
        """Return the dtype of an array."""
        return self.program.key.dtypes[name]

    def starts_at_zero(self, output: str) -> bool:
        """Return True if an output's memory must be zero before a run."""
        return any(one.name == output and one.is_zero for one in self.program.makes)

    @property
    def is_serial(self) -> bool:
        """Whether a launch runs on one thread, according to the times measured so far."""
        return self.program.is_serial(self._numbers, self._scalars)

    def note_pace(self, seconds: float) -> None:
        """Record the seconds that a step on one thread took, for the choice between one thread and several."""
        self.program.note_pace(seconds, self._numbers, self._scalars)

    def check(self, active: frozenset[str]) -> None:
        """Raise GradientError if these inputs have no gradient."""
        self.program.reverse.check(active)

    def forward(self, memory: Mapping[str, torch.Tensor]) -> PreparedPass:
        """Prepare a forward pass on memory of inputs and outputs, by name. Raise NotPrepared if that is impossible."""
        return self._prepare(self.program.forward_routine(self._numbers, self._scalars), memory)

    def backward(self, active: frozenset[str], given: frozenset[str]) -> Backward:
        """Plan the backward pass for the `active` inputs, from cotangents of the `given` outputs."""
        routine = self.program.backward_routine(active, given, self._numbers, self._scalars)
        cotangents = {
            self.outputs[one.number]: (one.name, one.is_copied) for one in routine.given if isinstance(one, Cotangent)
        }
        pairs = zip(self.inputs, routine.results, strict=True)
        gradients = {name: (one.name, one.is_summed) for name, one in pairs if one is not None}
        reads = tuple(one.name for one in routine.given if isinstance(one, Saved))
        return Backward(routine, reads, cotangents, gradients)

    def prepare_backward(self, backward: Backward, memory: Mapping[str, torch.Tensor]) -> PreparedPass:
        """Prepare a backward pass on memory of its reads, cotangents and gradients, by name.

        Raises NotPrepared if that is impossible.
        """
        return self._prepare(backward.routine, memory)

    def is_preparable(self, backward: Backward) -> bool:
        """Return True if a backward pass consists only of launches."""
        try:
            self._write(backward.routine, frozenset())
        except NotPrepared:
            return False
        return True

    def _prepare(self, routine: Routine, memory: Mapping[str, torch.Tensor]) -> PreparedPass:
        made = PreparedPass()
        self._write(routine, frozenset(memory))(memory, made, self._numbers, self._scalars)
        return made

    def _write(self, routine: Routine, provided: frozenset[str]) -> Any:
        """Return a function that records the launches of a routine. Raise NotPrepared if it does more than launch."""
        known = self.program.prepared
        key = routine, provided
        if key not in known:
            is_counted = any(isinstance(one, Tapes) and one.is_counted for one in routine.actions)
            if routine.is_looped or is_counted or any(isinstance(one, Copy | Take) for one in routine.actions):
                raise NotPrepared
            known[key] = _Writer(routine, self.program.key, provided).function()
        return known[key]


def prepare_stepping(op: Op[Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Stepping | None:
    """Prepare further calls of an op like this one; return None if its calls do more than launch.

    Raises what the call raises.
    """
    core = op._core
    is_special = op._seeded is not None or op._updates is not None or bool(op._structs) or core.signature.uses_blocks
    if is_special or not is_plain():
        return None
    bound: BoundArguments = op._bind(tuple(arguments), dict(named))
    program = op._programs.find(bound)
    if program is None or not program.is_direct or core.has_state or program.key.device.type != "cpu":
        return None
    numbers = solve_numbers(core, program, bound)
    if find_recorded(core, core.make_call_with(program.key, numbers, bound)) is not None:
        return None
    return Stepping(program, numbers, bound.scalars)
