"""Steps run one by one by torch: a Python function, a layer, or an op that has no launches prepared.

The forward pass runs without a graph. The backward pass runs each stretch of steps once more, with a graph, and asks
autograd for the gradient of that stretch; the states in between come from the schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._errors import ArgumentError, refusal
from ._captured import captured_leaves, refuse_unknown
from ._environment import under_autocast
from ._finite import check_finite
from ._job import Arguments, Job, is_differentiable
from ._schedule import Advance, Keep, Restore, Reverse


class Slots:
    """Kept states, each with a note of the random numbers that follow. The last one that is kept is the first to go.

    All memory is made at once. That of single states would lie scattered between what the steps make and give up, and a
    process would grow by half as much again (measured: 150 MB for a hundred states of 1 MB).
    """

    def __init__(self, state: list[Tensor], count: int) -> None:
        self._first = state  # the caller's, which takes no memory
        self._memory = [one.new_empty((count, *one.shape)) for one in state]
        self._notes: list[Any] = []

    def push(self, state: list[Tensor], note: Any) -> None:
        """Keep a state in the next slot."""
        slot = len(self._notes)
        self._notes.append(note)
        for memory, one in zip(self._memory if slot else (), state, strict=False):
            memory[slot - 1] = one

    def take(self, slot: int) -> tuple[list[Tensor], Any]:
        """The state in a slot, and its note. Those in later slots are not needed any more."""
        del self._notes[slot + 1 :]
        state = [memory[slot - 1] for memory in self._memory] if slot else self._first
        return state, self._notes[slot]


class Replay:
    """The steps of a job on one set of arguments."""

    def __init__(self, job: Job, tensors: Sequence[Tensor]) -> None:
        self._job = job
        self._given = job.arguments(tensors)
        self._rows = list(zip(*(one.unbind(0) for one in self._given.inputs), strict=True)) or [()] * job.length
        self._state: list[Tensor] = list(self._given.state)
        self._is_kept = True  # whether somebody else holds the present state too

    # Forward ----------------------------------------------------------------------------------
    def forward(self) -> list[Tensor]:
        """Run all steps; note the states that the schedule keeps. Returns states and then outputs."""
        job = self._job
        kept_at = set(job.schedule.kept)
        slots = Slots(self._state, job.schedule.capacity)
        states, outputs = self._room()
        for stretch in range(-(-job.length // job.unroll)):
            if stretch in kept_at:
                slots.push(self._state, job.random.note())
            for number in job.steps(stretch):
                made = self._step(number)
                for room, one in zip(outputs, made, strict=True):
                    room[number] = one
                row = job.row(number + 1)
                for room, one in zip(states if row is not None else (), self._state, strict=False):
                    room[row] = one
        job.kept = slots
        # Of a state that nobody changes, autograd would otherwise get an argument back as a result.
        return [*(states if job.every is not None else [one.clone() for one in self._state]), *outputs]

    def _room(self) -> tuple[list[Tensor], list[Tensor]]:
        """Memory for the results."""
        job = self._job
        first = self._given.state[0] if self._given.state else torch.empty(())
        rows = [(job.rows, like) for like in job.state] if job.every is not None else []
        outputs = [(job.length, like) for like in job.outputs]
        made = [first.new_empty((count, *like.shape), dtype=like.dtype) for count, like in (*rows, *outputs)]
        return made[: len(rows)], made[len(rows) :]

    def _step(self, number: int) -> list[Tensor]:
        """Run a step. Returns its outputs."""
        job, before = self._job, self._state
        given = [one.clone() for one in before] if job.changes_state and self._is_kept else before
        versions = [one._version for one in before] if self._is_kept else ()
        state, outputs = job.step(given, self._rows[number], self._given.parameters)
        if versions and [one._version for one in before] != versions:
            raise _changed_late(job, number)
        job.check_state(state, number)
        job.check_outputs(outputs, number)
        if job.checks:
            check_finite(job, number, given, self._rows[number], state, outputs)
        self._state, self._is_kept = state, False
        return outputs

    # Backward ---------------------------------------------------------------------------------
    def backward(self, cotangents: Sequence[Tensor | None], wanted: Sequence[bool]) -> list[Tensor | None]:
        """Gradients of the arguments that are wanted, from those of the results."""
        job = self._job
        with job.random.undisturbed(), under_autocast(job.autocast):
            if job.kept is None:
                self.forward()
                self._state = list(self._given.state)
            assert job.kept is not None
            slots, job.kept = job.kept, None  # other states take the place of those that are used up
            reversal = _Reversal(job, self._given, self._rows, cotangents, wanted)
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
                        reversal.pull_back(job.steps(stretch), self._state)
            return reversal.gradients()


class _Reversal:
    """The gradient on its way back from the last step to the first."""

    def __init__(
        self,
        job: Job,
        given: Arguments,
        rows: Sequence[Any],
        cotangents: Sequence[Tensor | None],
        wanted: Sequence[bool],
    ) -> None:
        count = job.sizes[0]
        self._job = job
        self._rows = rows
        self._wanted = job.arguments(wanted)
        self._state_cotangents, self._output_cotangents = cotangents[:count], cotangents[count:]
        self._state: list[Tensor | None] = [None] * count if job.every is not None else list(cotangents[:count])
        self._inputs = [
            torch.zeros_like(one) if wants else None
            for one, wants in zip(given.inputs, self._wanted.inputs, strict=True)
        ]
        self._parameters = [
            _leaf(one, wants) for one, wants in zip(given.parameters, self._wanted.parameters, strict=True)
        ]
        self._captured = given.captured
        self._sums: list[Tensor | None] = [None] * (len(given.parameters) + len(given.captured))

    def gradients(self) -> list[Tensor | None]:
        """Of all arguments."""
        return [*self._state, *self._inputs, *self._sums]

    def pull_back(self, steps: range, state: Sequence[Tensor]) -> None:
        """From the state after a stretch of steps to the one before it."""
        job = self._job
        first = [_leaf(one, is_differentiable(one)) for one in state]
        inputs = [[_leaf(one, w) for one, w in zip(self._rows[t], self._wanted.inputs, strict=True)] for t in steps]
        ends: list[tuple[Tensor, Tensor]] = []
        with torch.enable_grad():
            # what a step updates in place must be no leaf
            now: list[Tensor] = [one.clone() for one in first] if job.changes_state else first
            for number, row in zip(steps, inputs, strict=True):
                now, outputs = job.step(now, row, self._parameters)
                ends += _pairs(outputs, [None if c is None else c[number] for c in self._output_cotangents])
                at = job.row(number + 1)
                if at is not None:
                    ends += _pairs(now, [None if c is None else c[at] for c in self._state_cotangents])
                if job.changes_state and number != steps[-1]:
                    now = [one.clone() for one in now]  # the cotangent of a row belongs to what it was
            ends += _pairs(now, self._state)
        known = [*first, *(one for row in inputs for one in row), *self._parameters, *self._captured]
        refuse_unknown(job.step.name, steps[0], captured_leaves([one for one, _ in ends], known))
        rows = [one for row in inputs for one in row]
        found = _gradients(ends, [*first, *rows, *self._parameters, *self._captured])
        count = len(first)
        self._state = found[:count]
        self._put_inputs(steps, found[count : count + len(rows)])
        for place, part in enumerate(found[count + len(rows) :]):
            self._add(place, part)

    def _put_inputs(self, steps: range, found: Sequence[Tensor | None]) -> None:
        width = len(self._inputs)
        for place, part in enumerate(found):
            room = self._inputs[place % width]
            if room is not None and part is not None:
                room[steps[place // width]] = part

    def _add(self, place: int, part: Tensor | None) -> None:
        """Sum up, in place after the first."""
        if part is None:
            return
        total = self._sums[place]
        self._sums[place] = part.clone() if total is None else total.add_(part)


def _leaf(tensor: Tensor, wants: bool) -> Tensor:
    return tensor.detach().requires_grad_(wants and is_differentiable(tensor))


def _pairs(results: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
    pairs = zip(results, cotangents, strict=True)
    return [(one, cotangent) for one, cotangent in pairs if cotangent is not None and one.requires_grad]


def _gradients(ends: Sequence[tuple[Tensor, Tensor]], leaves: Sequence[Tensor]) -> list[Tensor | None]:
    """Gradients of the leaves, None for those that have none."""
    active = [one for one in leaves if one.requires_grad]
    if not ends or not active:
        return [None] * len(leaves)
    # A graph that a step shares with the outside, behind a captured tensor, is used again in the next step.
    results, cotangents = zip(*ends, strict=True)
    found = iter(torch.autograd.grad(results, active, cotangents, allow_unused=True, retain_graph=True))
    return [next(found) if one.requires_grad else None for one in leaves]


def _changed_late(job: Job, number: int) -> ArgumentError:
    words = f"step {number} of a scan over `{job.step.name}` changed its state in place, and step 0 did not"
    remedy = "Write `.clone()` before the change, or change it in every step: the state before it is needed again."
    return ArgumentError(refusal(words, remedy=remedy))
