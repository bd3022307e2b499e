"""Scans whose steps torch runs one by one: of a Python function, a layer, or an op without prepared launches.

The forward pass runs without a graph. The backward pass runs each stretch of steps once more, with a graph, and
computes the gradient of that stretch with autograd; the schedule provides the states between stretches. If the memory
suffices, the graphs are recorded in the forward pass, and nothing is run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._errors import ArgumentError, refusal
from ..tracing import get_version
from ._environment import restore_surroundings
from ._job import Job
from ._recorder import Recorder, Reversal, Stretch
from ._schedule import Advance, Keep, Restore, Reverse


class Slots:
    """A stack of kept states, each with a note of the random generators.

    All memory is allocated at once. Separate allocations would lie scattered between the temporaries of the steps, and
    the process would grow by half as much again (measured: 150 MB for a hundred states of 1 MB).
    """

    def __init__(self, state: list[Tensor], count: int, *, offloads: bool = False) -> None:
        self._first = state  # the caller's, which takes no memory
        self._memory = [_memory(one, count, offloads) for one in state]
        self._notes: list[Any] = []

    def push(self, state: list[Tensor], note: Any) -> None:
        """Keep a state in the next slot."""
        slot = len(self._notes)
        self._notes.append(note)
        for memory, one in zip(self._memory if slot else (), state, strict=False):
            # Copies from and to pinned memory only wait for the stream, in which all steps run.
            memory[slot - 1].copy_(one, non_blocking=True)

    def take(self, slot: int) -> tuple[list[Tensor], Any]:
        """Return the state in a slot, and its note. Free the later slots."""
        del self._notes[slot + 1 :]
        if not slot:
            return self._first, self._notes[slot]
        pairs = zip(self._memory, self._first, strict=True)
        return [memory[slot - 1].to(one.device, non_blocking=True) for memory, one in pairs], self._notes[slot]


def _memory(like: Tensor, count: int, offloads: bool) -> Tensor:
    """Allocate memory for `count` tensors like this one, in pinned host memory if a GPU's states are offloaded."""
    if not (offloads and like.is_cuda):
        return like.new_empty((count, *like.shape))
    return torch.empty((count, *like.shape), dtype=like.dtype, pin_memory=True)


class Replay:
    """The forward and backward pass of a job on one set of arguments, with steps that torch runs one by one."""

    def __init__(self, job: Job, tensors: Sequence[Tensor]) -> None:
        self._job = job
        self._given = job.arguments(tensors)
        self._rows = list(zip(*(one.unbind(0) for one in self._given.inputs), strict=True)) or [()] * job.length
        self._state: list[Tensor] = list(self._given.state)
        self._is_kept = True  # the current state belongs to the caller or to a slot too

    # Forward ----------------------------------------------------------------------------------
    def forward(self) -> list[Tensor]:
        """Run all steps, and keep the schedule's states or autograd's graphs. Return the states, then the outputs."""
        job = self._job
        job.begin = job.random.note()
        kept_at = set(job.schedule.stored_positions)
        slots = Slots(self._state, job.schedule.capacity if not job.keeps_graphs else 0, offloads=job.offloads)
        recorder = Recorder(job, self._given, self._rows, job.needs_gradient) if job.keeps_graphs else None
        graphs: list[Stretch] = []
        states, outputs = self._allocate_results()
        for number in range(-(-job.length // job.unroll)):
            if recorder is not None:
                graphs.append(recorder.record(job.steps(number), self._state))
                made = graphs[-1].results
                self._state = [one.detach() for one in graphs[-1].last]
            else:
                if number in kept_at:
                    slots.push(self._state, job.random.note())
                made = [self._step(step) for step in job.steps(number)]
            for step, (outs, now) in zip(job.steps(number), made, strict=True):
                for room, one in zip(outputs, outs, strict=True):
                    room[step] = one.detach()
                row = job.row(step + 1)
                for room, one in zip(states if row is not None else (), now, strict=False):
                    room[row] = one.detach()
        job.checkpoints = slots if recorder is None else (recorder, graphs)
        # A state that no step changes is an argument of the Function, which autograd does not allow as a result.
        return [*(states if job.every is not None else [one.clone() for one in self._state]), *outputs]

    def _allocate_results(self) -> tuple[list[Tensor], list[Tensor]]:
        """Allocate memory for the results: the states, if several are returned, and the outputs."""
        job = self._job
        first = self._given.state[0] if self._given.state else torch.empty(())
        rows = [(job.rows, like) for like in job.state] if job.every is not None else []
        outputs = [(job.length, like) for like in job.outputs]
        made = [first.new_empty((count, *like.shape), dtype=like.dtype) for count, like in (*rows, *outputs)]
        return made[: len(rows)], made[len(rows) :]

    def _step(self, number: int) -> tuple[list[Tensor], list[Tensor]]:
        """Run a step from the current state. Return its outputs, and the state after it."""
        job, before = self._job, self._state
        is_needed = self._is_kept or job.checks
        given = [one.clone() for one in before] if job.changes_state and is_needed else before
        # A kept state must not be changed by the step, since it is needed again.
        versions = [get_version(one) for one in before] if self._is_kept else ()
        state, outputs = job.run(number, given, self._rows[number], self._given.parameters)
        if versions and [get_version(one) for one in before] != versions:
            raise _make_change_error(job, number)
        if job.checks:
            job.check_finite(number, before, self._rows[number], self._given.parameters, state, outputs)
        self._state, self._is_kept = state, False
        return outputs, state

    # Backward ---------------------------------------------------------------------------------
    def backward(self, cotangents: Sequence[Tensor | None], wanted: Sequence[bool]) -> list[Tensor | None]:
        """Compute the gradients of the wanted arguments from the cotangents of the results."""
        job = self._job
        with job.random.preserve_states(), restore_surroundings(job.surroundings):
            if job.checkpoints is None:
                if job.begin is not None:  # None if the forward pass was launches, which draw no random numbers
                    job.random.restore(job.begin)
                self.forward()
            kept: Any = job.checkpoints
            job.checkpoints = None  # the backward pass overwrites the slots of states that it has consumed
            if job.keeps_graphs:
                return self._reverse_graphs(kept[0], kept[1], cotangents, wanted)
            return self._reverse_slots(kept, cotangents, wanted)

    def _reverse_graphs(
        self, recorder: Recorder, graphs: list[Stretch], cotangents: Sequence[Tensor | None], wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Compute the gradients through the graphs that autograd recorded in the forward pass."""
        reversal = Reversal(self._job, self._given, recorder, cotangents, wanted)
        while graphs:
            reversal.pull_back(graphs.pop())
        return reversal.gradients()

    def _reverse_slots(
        self, slots: Slots, cotangents: Sequence[Tensor | None], wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Compute the gradients from kept states, and from states recomputed by the schedule."""
        job = self._job
        recorder = Recorder(job, self._given, self._rows, wanted)
        reversal = Reversal(job, self._given, recorder, cotangents, wanted)
        for action in job.schedule.reversal():
            match action:
                case Restore(slot):
                    self._state, noted = slots.take(slot)
                    self._is_kept = True
                    job.random.restore(noted)
                case Advance(start, end):
                    for stretch in range(start, end):
                        for number in job.steps(stretch):
                            self._step(number)
                case Keep():
                    slots.push(self._state, job.random.note())
                case Reverse(stretch):
                    reversal.pull_back(recorder.record(job.steps(stretch), self._state))
        return reversal.gradients()


def _make_change_error(job: Job, number: int) -> ArgumentError:
    words = f"step {number} of a scan over `{job.step.name}` changed its state in place, and step 0 did not"
    remedy = "Write `.clone()` before the change, or change it in every step: the state before it is needed again."
    return ArgumentError(refusal(words, remedy=remedy))
