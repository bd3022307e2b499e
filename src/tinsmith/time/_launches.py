"""Steps that are launches alone: an op whose passes are prepared, on memory that is made once.

Each step reads the state from one buffer and writes the next one to another. A state that is kept is written to its
slot at once. Two prepared passes take turns, so that where nothing is kept no launch gets other memory than the time
before. States are known by their addresses alone: no tensor is made in a step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..calls import is_null, make_zeros
from ..operation import PreparedPass, Stepping, prepare_stepping
from ._job import Job, is_differentiable
from ._records import Move, Record, Rows
from ._steps import CallStep

TIMED = 12
"""Steps whose time is taken, to learn whether launches should use one thread."""


class Names(NamedTuple):
    """The op's names for the tensors of a scan."""

    state: list[str]
    following: list[str]
    inputs: list[str]
    outputs: list[str]
    parameters: list[str]


class Launches:
    """An op that is stepped by prepared launches.

    Attributes:
        stepping: its calls.
        names: what it calls the tensors of the scan.
    """

    def __init__(self, stepping: Stepping, names: Names) -> None:
        self.stepping = stepping
        self.names = names

    @property
    def order(self) -> list[str]:
        """Names of all arguments of the scan, in their order."""
        return [*self.names.state, *self.names.inputs, *self.names.parameters]

    def active(self, state: Sequence[Tensor], wanted: Sequence[bool]) -> frozenset[str]:
        """Arguments of the op that have a gradient in each step: all of the state, and what is wanted besides."""
        asked = {name for name, wants in zip(self.order, wanted, strict=True) if wants}
        moving = {name for name, one in zip(self.names.state, state, strict=True) if is_differentiable(one)}
        return frozenset(asked | moving)

    def has_backward(self, job: Job, state: Sequence[Tensor], wanted: Sequence[bool]) -> bool:
        """Whether the backward pass of a step is launches alone. Raises GradientError where there is no gradient."""
        active = self.active(state, wanted)
        self.stepping.check(active)
        outputs = frozenset({*self.names.following, *self.names.outputs}) & self.stepping.floats
        return self.stepping.is_preparable(self.stepping.backward(active, outputs))


def launches_of(job: Job, tensors: Sequence[Tensor], wanted: Sequence[bool] = ()) -> Launches | None:
    """How a job's steps are launched; None where that takes more than launches.

    `wanted` are the arguments that will need a gradient; none is said where no backward pass follows.
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
    launches = Launches(stepping, Names(list(state), following, list(inputs), outputs, list(parameters)))
    return launches if not wanted or launches.has_backward(job, given.state, wanted) else None


class StepPass(NamedTuple):
    """A prepared forward pass: what runs it, and what gives its arrays other memory."""

    prepared: PreparedPass
    state: list[Move]
    following: list[Move]
    inputs: list[tuple[Move, int, int]]
    outputs: list[Move]


class LaunchedSteps:
    """The steps of a job on one set of arguments, as launches: the forward pass."""

    def __init__(self, job: Job, launches: Launches, tensors: Sequence[Tensor]) -> None:
        self.job = job
        self.launches = launches
        self.stepping, self.names = launches.stepping, launches.names
        self.given = job.arguments([one.detach() for one in tensors])
        self.likes = [(one.shape, one.dtype) for one in job.state]
        self.initial = [one.data_ptr() for one in self.given.state]
        self.rows = [Rows.of(one) for one in self.given.inputs]
        self.is_zeroed = any(map(self.stepping.starts_at_zero, self.names.following))
        self._work = Record(self.likes), Record(self.likes)
        # where outputs go that nobody reads
        self.room = [
            torch.zeros(self.stepping.shape(name), dtype=self.stepping.dtype(name)) for name in self.names.outputs
        ]
        self._passes: tuple[StepPass, StepPass] | None = None

    # Forward ----------------------------------------------------------------------------------
    def forward(self) -> list[Tensor]:
        """Run all steps; keep the states that the schedule keeps. Returns states and then outputs."""
        job = self.job
        slots = Record(self.likes, job.schedule.capacity)
        places = {position: slot for slot, position in enumerate(job.schedule.stored_positions)}
        states = [make_zeros((job.rows, *one.shape), one.dtype) for one in self.given.state]
        outputs = [make_zeros((job.length, *one.shape), one.dtype) for one in self.room]
        rows, output_rows = [Rows.of(one) for one in states], [Rows.of(one) for one in outputs]
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
                for room, one in zip(states, slots.tensors(slot - 1), strict=True):
                    room[row] = one
            present = target
        if not job.length:
            for room, one in zip(states, self.given.state, strict=True):
                room[0] = one
        job.checkpoints = slots
        return [*(states if job.every is not None else [one[0] for one in states]), *outputs]

    def work_at(self, number: int) -> list[int]:
        """Memory for what a step makes, until the step after the next one."""
        work = self._work[number % 2]
        if self.is_zeroed:
            work.clear()
        return work.addresses()

    def _run(self, number: int, source: list[int], target: list[int], outputs: Sequence[int]) -> StepPass:
        """Launch a step. Returns the pass that was run."""
        one = (self._passes or self._prepare())[number % 2]
        for move, address in zip(one.state, source, strict=True):
            move(address)
        for move, address in zip(one.following, target, strict=True):
            move(address)
        for move, first, stride in one.inputs:
            move(first + number * stride)
        for move, address in zip(one.outputs, outputs, strict=True):
            move(address)
        if number < TIMED and self.stepping.is_serial:
            self._run_timed(one.prepared, number)
        else:
            one.prepared.run()
        return one

    def _run_timed(self, one: PreparedPass, number: int) -> None:
        """Launch, and learn from the thread's own time that it takes. Machine code is made at the first launch."""
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
            [(made.port(name), rows.first, rows.stride) for name, rows in zip(names.inputs, self.rows, strict=True)],
            [made.port(name) for name in names.outputs],
        )

    def run_again(self, number: int, source: list[int], target: list[int]) -> PreparedPass:
        """Run a step for the second time; its outputs are not given out. Returns the pass, which has its scratch."""
        for one in self.room:
            one.zero_()
        return self._run(number, source, target, [one.data_ptr() for one in self.room]).prepared
