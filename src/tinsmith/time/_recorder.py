"""Recorded stretches of steps, and the gradient that is propagated back through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ._captures import find_captured_leaves, refuse_unknown
from ._finite import check_finite
from ._job import Arguments, Job, is_differentiable


@dataclass(frozen=True)
class Stretch:
    """Steps that autograd has recorded, from leaves of their own.

    Attributes:
        steps: which.
        state, rows: the leaves: the state before the first step, and the inputs of each.
        results: of each step the outputs, and the state after it where the scan returns that.
        last: the state after the last step.
    """

    steps: range
    state: list[Tensor]
    rows: list[list[Tensor]]
    results: list[tuple[list[Tensor], list[Tensor]]]
    last: list[Tensor]


class Recorder:
    """Records the steps of a job.

    Attributes:
        parameters: leaves for these, which all stretches share.
    """

    def __init__(self, job: Job, given: Arguments, rows: Sequence[Sequence[Tensor]], wanted: Sequence[bool]) -> None:
        self._job, self._rows = job, rows
        self._needs_gradient = job.arguments(wanted)
        pairs = zip(given.parameters, self._needs_gradient.parameters, strict=True)
        self.parameters = [_leaf(one, wants) for one, wants in pairs]
        self.captured = list(given.captured)

    def record(self, steps: range, state: Sequence[Tensor]) -> Stretch:
        """Run the steps of a stretch from this state. Raises GradientError for a tensor that step 0 did not use."""
        job = self._job
        first = [_leaf(one, is_differentiable(one)) for one in state]
        rows = [
            [_leaf(one, w) for one, w in zip(self._rows[t], self._needs_gradient.inputs, strict=True)] for t in steps
        ]
        results: list[tuple[list[Tensor], list[Tensor]]] = []
        now = first
        with torch.enable_grad():
            for number, row in zip(steps, rows, strict=True):
                # What a step updates in place is neither a leaf nor a state that is returned.
                before = [one.clone() for one in now] if job.changes_state else now
                kept = [one.detach().clone() for one in before] if job.checks and job.changes_state else before
                now, outputs = job.run(number, before, row, self.parameters)
                job.check_state(now, number)
                job.check_outputs(outputs, number)
                if job.checks:
                    check_finite(job, number, kept, row, self.parameters, now, outputs)
                results.append((outputs, now if job.row(number + 1) is not None else []))
        known = [*first, *(one for row in rows for one in row), *self.parameters, *self.captured]
        ends = [one for outputs, states in results for one in (*outputs, *states)]
        refuse_unknown(job.step.name, steps[0], find_captured_leaves([*ends, *now], known))
        return Stretch(steps, first, rows, results, list(now))


class Reversal:
    """The gradient on its way back from the last step to the first."""

    def __init__(
        self,
        job: Job,
        given: Arguments,
        recorder: Recorder,
        cotangents: Sequence[Tensor | None],
        wanted: Sequence[bool],
    ) -> None:
        count = job.sizes[0]
        self._job = job
        self._recorder = recorder
        self._needs_gradient = job.arguments(wanted)
        self._state_cotangents, self._output_cotangents = cotangents[:count], cotangents[count:]
        self._state: list[Tensor | None] = [None] * count if job.every is not None else list(cotangents[:count])
        pairs = zip(given.inputs, self._needs_gradient.inputs, strict=True)
        self._inputs = [torch.zeros_like(one) if wants else None for one, wants in pairs]
        self._sums: list[Tensor | None] = [None] * (len(given.parameters) + len(given.captured))

    def gradients(self) -> list[Tensor | None]:
        """Of all arguments."""
        return [*self._state, *self._inputs, *self._sums]

    def pull_back(self, stretch: Stretch) -> None:
        """From the state after a stretch of steps to the one before it."""
        job, shared = self._job, [*self._recorder.parameters, *self._recorder.captured]
        ends: list[tuple[Tensor, Tensor]] = []
        for number, (outputs, states) in zip(stretch.steps, stretch.results, strict=True):
            ends += _pairs(outputs, [None if one is None else one[number] for one in self._output_cotangents])
            row = job.row(number + 1)
            if row is not None:
                ends += _pairs(states, [None if one is None else one[row] for one in self._state_cotangents])
        ends += _pairs(stretch.last, self._state)
        rows = [one for row in stretch.rows for one in row]
        wanted = [True] * len(stretch.state) + [*self._needs_gradient.inputs] * len(stretch.rows)
        wanted += [*self._needs_gradient.parameters, *self._needs_gradient.captured]
        # A graph that a step shares with the outside, behind a captured tensor, is used again in the next step. Others
        # are used once, and torch refuses to keep that of a compiled function whose first backward pass kept none.
        is_shared = bool(self._recorder.captured)
        gradients = pull_back(ends, [*stretch.state, *rows, *shared], wanted, retain_graph=is_shared)
        count = len(stretch.state)
        self._state = gradients[:count]
        self._put_inputs(stretch.steps, gradients[count : count + len(rows)])
        for place, part in enumerate(gradients[count + len(rows) :]):
            self._add(place, part)

    def _put_inputs(self, steps: range, gradients: Sequence[Tensor | None]) -> None:
        width = len(self._inputs)
        for place, part in enumerate(gradients):
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
    return [(one, cotangent) for one, cotangent in pairs if cotangent is not None]


def pull_back(
    ends: Sequence[tuple[Tensor, Tensor]],
    leaves: Sequence[Tensor],
    wanted: Sequence[bool] | None = None,
    *,
    create_graph: bool = False,
    retain_graph: bool = True,
) -> list[Tensor | None]:
    """Gradients of leaves, None for those that have none or are not wanted; `ends` are results and their cotangents."""
    wanted = [True] * len(leaves) if wanted is None else wanted
    asked = [one.requires_grad and wants for one, wants in zip(leaves, wanted, strict=True)]
    active = [one for one, is_asked in zip(leaves, asked, strict=True) if is_asked]
    ends = [pair for pair in ends if pair[0].requires_grad]
    if not ends or not active:
        return [None] * len(leaves)
    results, cotangents = zip(*ends, strict=True)
    options = {"create_graph": create_graph, "allow_unused": True, "retain_graph": retain_graph}
    gradients = iter(torch.autograd.grad(results, active, cotangents, **options))
    return [next(gradients) if is_asked else None for is_asked in asked]
