"""The backward pass of scans whose steps are only prepared launches.

The gradient of the state alternates between two buffers. Each buffer also contains the parameters' gradients of one
step, so that one call zeroes all of it; these are added to their sums after each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..operation import PreparedPass
from ._job import Job, is_differentiable
from ._launches import LaunchedSteps, Launches, Move, Record, Rows
from ._schedule import Action, Advance, Keep, Restore, Reverse


class BackwardPass(NamedTuple):
    """A prepared backward pass of one step, with functions that move its arrays to other memory.

    Attributes:
        prepared: the launches.
        state: for each tensor of the state that it reads, the index and the function that moves it.
        rows: for each tensor with time as its first dim (inputs, cotangents of outputs, gradients of inputs), the
            function that moves it, and its rows.
        results: for each result of the step that it reads, by name, the function that moves it.
    """

    prepared: PreparedPass
    state: list[tuple[int, Move]]
    rows: list[tuple[Move, Rows]]
    results: dict[str, Move]


class LaunchedReversal:
    """A backward pass in progress: the gradients of the current state and the sums of the other gradients."""

    def __init__(
        self,
        job: Job,
        launches: Launches,
        steps: LaunchedSteps,
        cotangents: Sequence[Tensor | None],
        wanted: Sequence[bool],
    ) -> None:
        names, count, given = launches.names, job.sizes[0], steps.given
        self._job, self._steps, self._names = job, steps, names
        self._states = cotangents[:count]
        self._outputs = [None if one is None else one.contiguous() for one in cotangents[count:]]
        sources = {n for n, one in zip(names.following, given.state, strict=True) if is_differentiable(one)}
        sources |= {n for n, one in zip(names.outputs, self._outputs, strict=True) if one is not None}
        self._backward = launches.stepping.backward(launches.active(given.state, wanted), frozenset(sources))
        asked = {name for name, wants in zip(launches.order, wanted, strict=True) if wants}
        # Arguments that all samples of a batch share have one gradient per sample, which the pass allocates itself.
        self._summed = [name for name in launches.order if name in asked and self._backward.gradients[name][1]]
        parameters = {n: o for n, o in zip(names.parameters, given.parameters, strict=True) if n in asked}
        self._parameters = [name for name in parameters if name not in self._summed]
        like = [(parameters[name].shape, parameters[name].dtype) for name in self._parameters]
        self._records = Record([*steps.likes, *like]), Record([*steps.likes, *like])
        self._parts = [record.tensors()[count:] for record in self._records]
        self._sums = [torch.zeros_like(parameters[name]) for name in self._parameters]
        self._wide: dict[str, Tensor] = {}
        inputs = zip(names.inputs, given.inputs, strict=True)
        self._inputs = {name: torch.zeros_like(one) for name, one in inputs if name in asked}
        self._turn = 0
        self._begin()
        # If the pass reads results of the step, the step is run again for them.
        self._needs_results = bool({*self._backward.reads} - {*launches.stepping.inputs})
        self._again = Record(steps.likes)
        self._room = [torch.zeros_like(one) for one in steps.room]
        self._passes = self._prepare(0), self._prepare(1)

    def _begin(self) -> None:
        """Copy the cotangents of the last state to the first buffer, if the scan returns only that state."""
        if self._job.every is None:
            for room, one in zip(self._records[0].tensors(), self._states, strict=False):
                if one is not None:
                    room.copy_(one)

    # Preparing --------------------------------------------------------------------------------
    def _prepare(self, turn: int) -> BackwardPass:
        """Prepare the backward pass of a step that reads the gradient from buffer `turn` and writes it to the other."""
        names, backward, steps = self._names, self._backward, self._steps
        made = steps.stepping.prepare_backward(backward, {**self._values(), **self._gradients_at(turn)})
        rows = [(n, one) for n, one in zip(names.inputs, steps.given.inputs, strict=True) if n in backward.reads]
        rows += [(backward.gradients[n][0], one) for n, one in self._inputs.items() if n not in self._summed]
        for name, one in zip(names.outputs, self._outputs, strict=True):
            memory, is_spoiled = backward.cotangents.get(name, ("", True))
            if one is not None and not is_spoiled:
                rows.append((memory, one))
        return BackwardPass(
            made,
            [(place, made.port(name)) for place, name in enumerate(names.state) if name in backward.reads],
            [(made.port(name), Rows.find(one)) for name, one in rows],
            {name: made.port(name) for name in backward.reads if name not in steps.stepping.inputs},
        )

    def _gradients_at(self, turn: int) -> dict[str, Tensor]:
        """Return the memory of gradients and cotangents, by name, with the gradient of the state read from `turn`.

        For memory that changes from step to step, it is that of step 0.
        """
        names, backward, count = self._names, self._backward, self._job.sizes[0]
        present, following = self._records[turn].tensors(), self._records[1 - turn].tensors()
        sources = [*zip(names.following, present[:count], strict=True), *zip(names.outputs, self._room, strict=True)]
        targets = [*zip([*names.state, *self._parameters], following, strict=True)]
        targets += [(name, one[0]) for name, one in self._inputs.items() if name not in self._summed]
        memory = {backward.cotangents[name][0]: room for name, room in sources if name in backward.cotangents}
        return memory | {backward.gradients[name][0]: room for name, room in targets if name in backward.gradients}

    def _values(self) -> dict[str, Tensor]:
        """Return the memory of the values that the pass reads, by name.

        For memory that changes from step to step, it is that of step 0.
        """
        names, given, steps = self._names, self._steps.given, self._steps
        memory: dict[str, Tensor] = {}
        if self._needs_results:
            self._again.clear()
            memory |= steps.run_again(0, steps.initial, self._again.addresses()).memory
            memory |= dict(zip(names.following, self._again.tensors(), strict=True))
        memory |= dict(zip(names.parameters, given.parameters, strict=True))
        memory |= {name: one[0] for name, one in zip(names.inputs, given.inputs, strict=True)}
        memory |= dict(zip(names.state, given.state, strict=True))
        return {name: memory[name] for name in self._backward.reads}

    # Going back -------------------------------------------------------------------------------
    def pull_back(self, number: int, state: list[int]) -> None:
        """Propagate the gradient back over step `number`. `state` are the addresses of the state before the step."""
        turn = self._turn
        one = self._passes[turn]
        if self._job.every is not None:
            self._add_row(self._records[turn], number)
        if self._needs_results:
            self._run_again(one, number, state)
        for place, move in one.state:
            move(state[place])
        for move, (first, stride) in one.rows:
            move(first + number * stride)
        if self._outputs:
            # The pass overwrites some cotangents, so it gets copies; outputs without one get zeros.
            for name, cotangent, room in zip(self._names.outputs, self._outputs, self._room, strict=True):
                if name not in self._backward.cotangents:
                    continue
                if cotangent is None:
                    room.zero_()
                elif self._backward.cotangents[name][1]:
                    room.copy_(cotangent[number])
        self._records[1 - turn].clear()
        one.prepared.run()
        for total, part in zip(self._sums, self._parts[1 - turn], strict=True):
            total.add_(part)
        if self._summed:
            self._sum_samples(one.prepared, number)
        self._turn = 1 - turn

    def _add_row(self, record: Record, number: int) -> None:
        """Add the cotangent of the state after step `number` to a buffer, if the scan returned that state."""
        row = self._job.row(number + 1)
        for room, one in zip(record.tensors() if row is not None else (), self._states, strict=False):
            if one is not None:
                room.add_(one[row])

    def _run_again(self, one: BackwardPass, number: int, state: list[int]) -> None:
        """Run step `number` again, and point its backward pass to the results that it reads."""
        self._again.clear()
        memory = self._steps.run_again(number, state, self._again.addresses()).memory
        addresses = {name: room.data_ptr() for name, room in memory.items()}
        addresses |= dict(zip(self._names.following, self._again.addresses(), strict=True))
        for name, move in one.results.items():
            move(addresses[name])

    def _sum_samples(self, made: PreparedPass, number: int) -> None:
        """Sum the gradients of arguments that all samples of a batch share: over samples, or over steps for parameters.

        The sum of parameters over samples is computed at the end.
        """
        for name in self._summed:
            gradient = made.memory[self._backward.gradients[name][0]]
            if name in self._inputs:
                torch.sum(gradient, 0, out=self._inputs[name][number])
            elif name in self._wide:
                self._wide[name].add_(gradient)
            else:
                self._wide[name] = gradient.clone()

    def gradients(self) -> list[Tensor | None]:
        """Return the gradients of all arguments after the last step back; None for those without one."""
        count = self._job.sizes[0]
        sums = dict(zip(self._parameters, self._sums, strict=True))
        sums |= {name: one.sum(0) for name, one in self._wide.items()}
        state = [one.clone() for one in self._records[self._turn].tensors()[:count]]
        inputs = [self._inputs.get(name) for name in self._names.inputs]
        return [*state, *inputs, *(sums.get(name) for name in self._names.parameters)]


class Launched(LaunchedSteps):
    """The forward and backward pass of a job on one set of arguments, as prepared launches."""

    def backward(self, cotangents: Sequence[Tensor | None], wanted: Sequence[bool]) -> list[Tensor | None]:
        """Compute the gradients of the wanted arguments from the cotangents of the results."""
        job = self.job
        if job.checkpoints is None:
            self.forward()
        slots: Any = job.checkpoints
        job.checkpoints = None  # the backward pass overwrites the slots of states that it has consumed
        reversal = LaunchedReversal(job, self.launches, self, cotangents, wanted)
        if job.schedule.every == 1:
            for number in range(job.length - 1, 0, -1):
                reversal.pull_back(number, slots.addresses(number - 1))
            if job.length:
                reversal.pull_back(0, self.initial)
            return reversal.gradients()
        present = self.initial
        for action, following in _pair_with_next(job.schedule.reversal()):
            match action:
                case Restore(slot):
                    present = slots.addresses(slot - 1) if slot else self.initial
                case Advance(start, end):
                    kept = following.slot if isinstance(following, Keep) else None
                    present = self._advance(start, end, present, slots, kept)
                case Keep():
                    pass  # it was written there
                case Reverse(position):
                    reversal.pull_back(position, present)
        return reversal.gradients()

    def _advance(self, start: int, end: int, present: list[int], slots: Record, kept: int | None) -> list[int]:
        """Run the steps from `start` to `end` again, from the state at `present`. Return the last state's addresses.

        The last state is written to the slot `kept`, if given.
        """
        for number in range(start, end):
            if kept is None or number + 1 < end:
                target = self.work_at(number)
            else:
                target = slots.addresses(kept - 1)
                if self.is_zeroed:
                    slots.clear(kept - 1)
            self.run_again(number, present, target)
            present = target
        return present


def _pair_with_next(actions: Iterator[Action]) -> Iterator[tuple[Action, Action | None]]:
    """Yield each action with the one after it, or None."""
    present = next(actions, None)
    for following in actions:
        if present is not None:
            yield present, following
        present = following
    if present is not None:
        yield present, None
