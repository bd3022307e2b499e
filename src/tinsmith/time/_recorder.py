"""Stretches of steps that autograd records, and the backward pass through them.

A scan is one autograd Function, which has gradients for its arguments only. So tensors of a closure or a module that
require a gradient become arguments of it too: captured tensors, which are found in autograd's graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .._errors import GradientError, refusal
from ._job import Arguments, Job, insert_missing, is_differentiable


@dataclass(frozen=True)
class Stretch:
    """Consecutive steps that autograd has recorded, starting from new leaves.

    Attributes:
        steps: the numbers of the steps.
        state, rows: the leaves: the state before the first step, and the inputs of each step.
        results: for each step its outputs, and the state after it if the scan returns that state (else empty).
        last: the state after the last step.
    """

    steps: range
    state: list[Tensor]
    rows: list[list[Tensor]]
    results: list[tuple[list[Tensor], list[Tensor]]]
    last: list[Tensor]


class Recorder:
    """A recorder of stretches of a job's steps.

    Attributes:
        parameters: leaves for the parameters, which all stretches share.
        captured: the captured tensors.
    """

    def __init__(self, job: Job, given: Arguments, rows: Sequence[Sequence[Tensor]], wanted: Sequence[bool]) -> None:
        self._job, self._rows = job, rows
        self._needs_gradient = job.arguments(wanted)
        pairs = zip(given.parameters, self._needs_gradient.parameters, strict=True)
        self.parameters = [_make_leaf(one, wants) for one, wants in pairs]
        self.captured = list(given.captured)

    def record(self, steps: range, state: Sequence[Tensor]) -> Stretch:
        """Run the steps of a stretch from this state, recorded by autograd.

        Raises:
            GradientError: a step uses a captured tensor that step 0 did not use.
        """
        job = self._job
        first = [_make_leaf(one, is_differentiable(one)) for one in state]
        rows = [
            [_make_leaf(one, w) for one, w in zip(self._rows[t], self._needs_gradient.inputs, strict=True)]
            for t in steps
        ]
        results: list[tuple[list[Tensor], list[Tensor]]] = []
        now = first
        with torch.enable_grad():
            for number, row in zip(steps, rows, strict=True):
                # A step may update its state in place, which must be neither a leaf nor a state that is returned.
                before = [one.clone() for one in now] if job.changes_state else now
                following, outputs = job.run(number, before, row, self.parameters)
                if job.checks:
                    job.check_finite(number, now, row, self.parameters, following, outputs)
                now = following
                results.append((outputs, now if job.row(number + 1) is not None else []))
        known = [*first, *(one for row in rows for one in row), *self.parameters, *self.captured]
        ends = [one for outputs, states in results for one in (*outputs, *states)]
        _refuse_unknown(job.step.name, steps[0], find_captured_leaves([*ends, *now], known))
        return Stretch(steps, first, rows, results, list(now))


class Reversal:
    """A backward pass in progress: the gradients of the current state, of inputs, and sums of the others."""

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
        """Return the gradients of all arguments after the last stretch; None for those without one."""
        return [*self._state, *self._inputs, *self._sums]

    def pull_back(self, stretch: Stretch) -> None:
        """Propagate the gradient back over a stretch of steps, to the state before it."""
        job, shared = self._job, [*self._recorder.parameters, *self._recorder.captured]
        ends: list[tuple[Tensor, Tensor]] = []
        for number, (outputs, states) in zip(stretch.steps, stretch.results, strict=True):
            ends += _pair_cotangents(outputs, [None if one is None else one[number] for one in self._output_cotangents])
            row = job.row(number + 1)
            if row is not None:
                ends += _pair_cotangents(states, [None if one is None else one[row] for one in self._state_cotangents])
        ends += _pair_cotangents(stretch.last, self._state)
        rows = [one for row in stretch.rows for one in row]
        wanted = [True] * len(stretch.state) + [*self._needs_gradient.inputs] * len(stretch.rows)
        wanted += [*self._needs_gradient.parameters, *self._needs_gradient.captured]
        # A graph outside of the scan that leads to a captured tensor is used again for the next stretch. Other graphs
        # are used once, and torch refuses to retain that of a compiled function whose first backward pass freed it.
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
        """Add a gradient to the sum at this place, in place after the first; do nothing for None."""
        if part is None:
            return
        total = self._sums[place]
        self._sums[place] = part.clone() if total is None else total.add_(part)


def find_captured_leaves(results: Iterable[Tensor], known: Sequence[Tensor]) -> list[Tensor]:
    """Return the leaves of autograd's graph that results depend on and that are not `known`, in the order found."""
    given = {id(one) for one in known}
    leaves: dict[int, Tensor] = {}
    queue = [one.grad_fn for one in results if one.grad_fn is not None]
    seen = set(queue)
    while queue:
        node = queue.pop()
        leaf = getattr(node, "variable", None)  # present in the node that accumulates a leaf's gradient
        if leaf is not None and id(leaf) not in given:
            leaves[id(leaf)] = leaf
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)
    return list(leaves.values())


def _refuse_unknown(step: str, number: int, tensors: Sequence[Tensor]) -> None:
    """Raise GradientError if a step uses tensors that the first step did not use: their gradients would be missing.

    Args:
        step: the name of the step.
        number: the number of the step, for the message.
        tensors: the unknown tensors.
    """
    if not tensors:
        return
    words = (
        f"step {number} of a scan over `{step}` uses a tensor that requires a gradient "
        "and is not an argument of the scan"
    )
    rows = [("tensor", f"{tuple(tensors[0].shape)} {tensors[0].dtype}"), ("in step 0", "not used")]
    remedy = "Pass it in `parameters`: captured tensors are found only in the first step."
    raise GradientError(refusal(words, rows, remedy))


def _make_leaf(tensor: Tensor, wants: bool) -> Tensor:
    return tensor.detach().requires_grad_(wants and is_differentiable(tensor))


def _pair_cotangents(results: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
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
    """Compute the gradients of leaves with autograd; None for those without one and those that are not wanted.

    Args:
        ends: pairs of a result and its cotangent.
        leaves: the tensors to differentiate with respect to.
        wanted: for each leaf, whether its gradient is wanted; None for all.
        create_graph: make the gradients differentiable.
        retain_graph: keep the graph for another backward pass.
    """
    wanted = [True] * len(leaves) if wanted is None else wanted
    asked = [one.requires_grad and wants for one, wants in zip(leaves, wanted, strict=True)]
    active = [one for one, is_asked in zip(leaves, asked, strict=True) if is_asked]
    ends = [pair for pair in ends if pair[0].requires_grad]
    if not ends or not active:
        return [None] * len(leaves)
    results, cotangents = zip(*ends, strict=True)
    options = {"create_graph": create_graph, "allow_unused": True, "retain_graph": retain_graph}
    return insert_missing(torch.autograd.grad(results, active, cotangents, **options), asked)
