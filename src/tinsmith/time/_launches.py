"""The forward pass of scans whose steps are only prepared launches of an op, on memory that is allocated once.

Each step reads the state from one buffer and writes the next state to another. A state that is kept is written to its
slot directly. Two prepared passes alternate, so that without kept states a pass always has the same memory.
States are represented by their addresses: no tensor is made in a step.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..calls import is_null, make_zeros
from ..operation import PreparedPass, Stepping, prepare_stepping
from ._job import Job, is_differentiable
from ._steps import CallStep

TIMED = 12
"""Number of steps that are timed, to decide whether launches should use one thread."""
ALIGNED = 64
"""The alignment of tensors' addresses in bytes."""
Move = Callable[[int], None]
"""A function that sets the address of an array of a prepared launch."""


class TensorNames(NamedTuple):
    """The op's names for the tensors of a scan; `following` are the results that are the next state."""

    state: list[str]
    following: list[str]
    inputs: list[str]
    outputs: list[str]
    parameters: list[str]


class Launches:
    """An op that is stepped by prepared launches.

    Attributes:
        stepping: the prepared calls of the op.
        names: the op's names for the tensors of the scan.
    """

    def __init__(self, stepping: Stepping, names: TensorNames) -> None:
        self.stepping = stepping
        self.names = names

    @property
    def order(self) -> list[str]:
        """The op's names for all arguments of the scan, in the scan's order."""
        return [*self.names.state, *self.names.inputs, *self.names.parameters]

    def active(self, state: Sequence[Tensor], wanted: Sequence[bool]) -> frozenset[str]:
        """Return the op's arguments that have a gradient in each step: the differentiable state and wanted ones."""
        asked = {name for name, wants in zip(self.order, wanted, strict=True) if wants}
        moving = {name for name, one in zip(self.names.state, state, strict=True) if is_differentiable(one)}
        return frozenset(asked | moving)

    def has_backward(self, state: Sequence[Tensor], wanted: Sequence[bool]) -> bool:
        """Return True if the backward pass of a step consists only of launches that can be prepared.

        Raises:
            GradientError: the op has no gradient.
        """
        active = self.active(state, wanted)
        self.stepping.check(active)
        outputs = frozenset({*self.names.following, *self.names.outputs}) & self.stepping.floats
        return self.stepping.is_preparable(self.stepping.backward(active, outputs))


def prepare_launches(job: Job, tensors: Sequence[Tensor], wanted: Sequence[bool]) -> Launches | None:
    """Return the prepared launches of a job's steps; None if a step consists of more than launches.

    `wanted` tells which arguments will need a gradient; empty if no backward pass follows.
    """
    step = job.step
    if not isinstance(step, CallStep) or step.op is None or job.checks:
        return None
    given = job.arguments(tensors)
    if not all(one.is_contiguous() and not one.is_neg() and not is_null(one) for one in given.flat):
        return None
    with torch.no_grad():
        rows = [one[0] for one in given.inputs]
        plain = [one.detach() for one in (*given.state, *rows, *given.parameters)]
        arguments, named = step.arrange(*job.arguments(plain)[:3])
        stepping = prepare_stepping(step.op, arguments, named)
    if stepping is None:
        return None
    state, inputs, parameters = step.names
    results = step.op.results
    outputs = [name for place, name in enumerate(results) if place not in step.places]
    following = [results[place] for place in step.places]
    launches = Launches(stepping, TensorNames(list(state), following, list(inputs), outputs, list(parameters)))
    return launches if not wanted or launches.has_backward(given.state, wanted) else None


class Record:
    """An array of records: each has several tensors in contiguous memory, so that one call zeroes them all.

    Attributes:
        columns: each tensor for all records, with the record ("piece") as its first dim.
    """

    def __init__(self, likes: Sequence[tuple[torch.Size, torch.dtype]], count: int = 1) -> None:
        sizes = [shape.numel() * dtype.itemsize for shape, dtype in likes]
        self._offsets = list(itertools.accumulate([-(-size // ALIGNED) * ALIGNED for size in sizes], initial=0))
        self._size = self._offsets[-1]
        self._memory = make_zeros((count, self._size), torch.uint8)
        self._first = self._memory.data_ptr()
        self.columns = [
            self._memory[:, start : start + size].view(dtype).view(count, *shape)
            for (shape, dtype), start, size in zip(likes, self._offsets, sizes, strict=False)
        ]

    def addresses(self, piece: int = 0) -> list[int]:
        """Return the addresses of the tensors of a record."""
        begin = self._first + piece * self._size
        return [begin + offset for offset in self._offsets[:-1]]

    def tensors(self, piece: int = 0) -> list[Tensor]:
        """Return the tensors of a record."""
        return [column[piece] for column in self.columns]

    def clear(self, piece: int = 0) -> None:
        """Zero the tensors of a record."""
        self._memory[piece].zero_()


class Rows(NamedTuple):
    """The addresses of the rows of a tensor with time as its first dim: that of row 0, and the bytes between rows."""

    first: int
    stride: int

    @classmethod
    def find(cls, tensor: Tensor) -> Rows:
        """Return the address of the first row of a contiguous tensor, and the number of bytes of a row."""
        return cls(tensor.data_ptr(), tensor[0].nbytes if len(tensor) else 0)


class StepPass(NamedTuple):
    """A prepared forward pass of one step, with functions that move its arrays to other memory.

    Attributes:
        prepared: the launches.
        state: the function that moves each tensor of the state.
        following: the function that moves each tensor of the next state.
        inputs: for each input, which has time as its first dim, the function that moves it, and its rows.
        outputs: the function that moves each output.
    """

    prepared: PreparedPass
    state: list[Move]
    following: list[Move]
    inputs: list[tuple[Move, Rows]]
    outputs: list[Move]


class LaunchedSteps:
    """The forward pass of a job on one set of arguments, as prepared launches."""

    def __init__(self, job: Job, launches: Launches, tensors: Sequence[Tensor]) -> None:
        self.job = job
        self.launches = launches
        self.stepping, self.names = launches.stepping, launches.names
        self.given = job.arguments([one.detach() for one in tensors])
        self.likes = [(one.shape, one.dtype) for one in job.state]
        self.initial = [one.data_ptr() for one in self.given.state]
        self.rows = [Rows.find(one) for one in self.given.inputs]
        self.is_zeroed = any(map(self.stepping.starts_at_zero, self.names.following))
        self._work = Record(self.likes), Record(self.likes)
        # Memory for outputs of steps that run again, which nobody reads.
        self.room = [
            torch.zeros(self.stepping.shape(name), dtype=self.stepping.dtype(name)) for name in self.names.outputs
        ]
        self._passes: tuple[StepPass, StepPass] | None = None

    # Forward ----------------------------------------------------------------------------------
    def forward(self) -> list[Tensor]:
        """Run all steps, and keep the states that the schedule keeps. Return the states, then the outputs."""
        job = self.job
        slots = Record(self.likes, job.schedule.capacity)
        places = {position: slot for slot, position in enumerate(job.schedule.stored_positions)}
        leading = () if job.every is None else (job.rows,)
        states = [make_zeros((*leading, *one.shape), one.dtype) for one in self.given.state]
        # The results are no views, which autograd would not let a program change in place.
        kept = [one[None] for one in states] if job.every is None else states
        outputs = [make_zeros((job.length, *one.shape), one.dtype) for one in self.room]
        rows, output_rows = [Rows.find(one) for one in kept], [Rows.find(one) for one in outputs]
        present = self.initial
        for number in range(job.length):
            slot = places.get(number + 1)
            row = job.row(number + 1) if job.every is not None else 0 if number + 1 == job.length else None
            if slot is not None:
                target = slots.addresses(slot - 1)
            elif row is not None:
                target = [first + row * stride for first, stride in rows]
            else:
                target = self.work_at(number)
            self._run(number, present, target, [first + number * stride for first, stride in output_rows])
            if slot is not None and row is not None:
                for room, one in zip(kept, slots.tensors(slot - 1), strict=True):
                    room[row] = one
            present = target
        if not job.length:
            for room, one in zip(kept, self.given.state, strict=True):
                room[0] = one
        job.checkpoints = slots
        return [*states, *outputs]

    def work_at(self, number: int) -> list[int]:
        """Return the addresses of a buffer for the state that step `number` makes, valid until two steps later."""
        work = self._work[number % 2]
        if self.is_zeroed:
            work.clear()
        return work.addresses()

    def _run(self, number: int, source: list[int], target: list[int], outputs: Sequence[int]) -> StepPass:
        """Launch step `number` with the state at `source`, the next state at `target`, and these addresses of outputs.

        Return the pass that was run.
        """
        one = (self._passes or self._prepare())[number % 2]
        for move, address in zip(one.state, source, strict=True):
            move(address)
        for move, address in zip(one.following, target, strict=True):
            move(address)
        for move, (first, stride) in one.inputs:
            move(first + number * stride)
        for move, address in zip(one.outputs, outputs, strict=True):
            move(address)
        if number < TIMED and self.stepping.is_serial:
            self._run_timed(one.prepared, number)
        else:
            one.prepared.run()
        return one

    def _run_timed(self, one: PreparedPass, number: int) -> None:
        """Launch a step and report its thread time, by which the number of threads is chosen.

        The first launches are not reported, since they compile machine code.
        """
        begun = time.thread_time()
        one.run()
        if number > 1:
            self.stepping.note_pace(time.thread_time() - begun)
        if not self.stepping.is_serial:
            self._passes = None  # prepared again, on several threads

    def _prepare(self) -> tuple[StepPass, StepPass]:
        names, given = self.names, self.given
        memory = dict(zip(names.parameters, given.parameters, strict=True))
        memory |= {name: one[0] for name, one in zip(names.inputs, given.inputs, strict=True)}
        memory |= dict(zip(names.outputs, self.room, strict=True))
        self._passes = self._prepare_at(0, memory), self._prepare_at(1, memory)
        return self._passes

    def _prepare_at(self, parity: int, memory: Mapping[str, Tensor]) -> StepPass:
        names = self.names
        source = dict(zip(names.state, self._work[1 - parity].tensors(), strict=True))
        target = dict(zip(names.following, self._work[parity].tensors(), strict=True))
        made = self.stepping.forward({**memory, **source, **target})
        return StepPass(
            made,
            [made.port(name) for name in names.state],
            [made.port(name) for name in names.following],
            [(made.port(name), rows) for name, rows in zip(names.inputs, self.rows, strict=True)],
            [made.port(name) for name in names.outputs],
        )

    def run_again(self, number: int, source: list[int], target: list[int]) -> PreparedPass:
        """Run a step again, and discard its outputs. Return the pass, which holds the step's scratch."""
        for one in self.room:
            one.zero_()
        return self._run(number, source, target, [one.data_ptr() for one in self.room]).prepared
