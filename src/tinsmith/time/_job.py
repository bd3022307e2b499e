"""Job: one scan, ready to run, with its step, its number of steps, and its schedule of kept states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._errors import DEBUGGING, ArgumentError, CheckError, DtypeError, ShapeError, refusal
from .._offers import describing_origin
from ._environment import FirstCalls, RandomStates, Surroundings
from ._schedule import Schedule
from ._steps import Step


class Arguments(NamedTuple):
    """The tensors of a scan by kind. autograd gets them as one list."""

    state: Sequence[Any]
    inputs: Sequence[Any]
    parameters: Sequence[Any]
    captured: Sequence[Any] = ()

    @property
    def flat(self) -> tuple[Any, ...]:
        """All tensors in one list: state, inputs, parameters, captured."""
        return (*self.state, *self.inputs, *self.parameters, *self.captured)


class Like(NamedTuple):
    """The name, shape and dtype that one tensor of the state, or of the outputs, has in all steps."""

    name: str
    shape: torch.Size
    dtype: torch.dtype

    def __str__(self) -> str:
        """Return shape and dtype as text, for messages."""
        return f"{tuple(self.shape)} {str(self.dtype).removeprefix('torch.')}"


@dataclass(eq=False)
class Job:
    """One scan, ready to run.

    Attributes:
        step: the step.
        length: the number of steps.
        every: results contain the state after every n-th step; None for the last state only.
        unroll: the number of steps of a stretch, which the backward pass records at once.
        schedule: the schedule of kept states, counted in stretches.
        sizes: the numbers of tensors of state, inputs and parameters.
        state, outputs: name, shape and dtype of each tensor of the state and of the outputs.
        random, surroundings: torch's random generators, autocast and default device, on which the steps depend.
        changes_state: True if the step updates its state in place.
        offloads: True if states are kept in the host's memory.
        checks: True if results are checked for numbers that are not finite.
        needs_gradient: for each argument, whether it needs a gradient; empty if none does.
        keeps_graphs: True if the forward pass keeps autograd's graphs instead of states.
        begin: a note of the random generators before the first step.
        checkpoints: the states or graphs that the forward pass kept; None after a backward pass has consumed them.
        plan: a function from the state of a batch to its schedule.
        batches: batches of this job, by sizes and dims.
        first: notes of the values besides arguments that the ops of step 0 read.
    """

    step: Step
    length: int
    every: int | None
    unroll: int
    schedule: Schedule
    sizes: tuple[int, int, int]
    state: list[Like]
    outputs: list[Like]
    random: RandomStates
    surroundings: Surroundings
    plan: Callable[[Sequence[Like]], Schedule]
    changes_state: bool = False
    offloads: bool = False
    checks: bool = False
    needs_gradient: tuple[bool, ...] = ()
    keeps_graphs: bool = False
    begin: Any = None
    checkpoints: Any = None
    batches: dict[Any, Any] = field(default_factory=dict)
    first: FirstCalls = field(default_factory=FirstCalls)

    def run(
        self, number: int, state: Sequence[Any], inputs: Sequence[Any], parameters: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Run step `number`, and return its next state and outputs.

        Raises:
            GradientError: step 0 runs again, and an op in it depends on values that have changed.
            ArgumentError, ShapeError, DtypeError: a result is not a tensor, or has another shape or dtype than before.
        """
        with nullcontext() if number else self.first.compare():
            following, outputs = self.step(state, inputs, parameters)
        self.check_state(following, number)
        self._check_outputs(outputs, number)
        return following, outputs

    def arguments(self, tensors: Sequence[Any]) -> Arguments:
        """Split the list of all arguments, or of values for each such as gradients, by kind."""
        state, inputs, parameters = self.sizes
        ends = state, state + inputs, state + inputs + parameters
        return Arguments(tensors[: ends[0]], tensors[ends[0] : ends[1]], tensors[ends[1] : ends[2]], tensors[ends[2] :])

    @property
    def rows(self) -> int:
        """The number of states in the results; 1 if only the last one is returned."""
        return self.length // self.every if self.every else 1

    def row(self, position: int) -> int | None:
        """Return the row of the returned trajectory that has the state after `position` steps; None if none has it."""
        if self.every is None or position == 0 or position % self.every:
            return None
        return position // self.every - 1

    def steps(self, stretch: int) -> range:
        """Return the step numbers of a stretch: a group of `unroll` steps that the backward pass records at once."""
        return range(stretch * self.unroll, min((stretch + 1) * self.unroll, self.length))

    def check_state(self, state: Sequence[Any], number: int) -> None:
        """Raise an error unless a state, which step `number` returned, has the shapes and dtypes of the initial state.

        Raises:
            ArgumentError, ShapeError, DtypeError: a part is not a tensor, or has another shape or dtype.
        """
        for like, one in zip(self.state, state, strict=True):
            if not isinstance(one, Tensor):
                words = (
                    f"step {number} of a scan over `{self.step.name}` returned something that is not a tensor "
                    f"as `{like.name}`"
                )
                raise ArgumentError(refusal(words, [("got", f"{type(one).__name__} {one!r:.60}")], "Return tensors."))
            if one.shape != like.shape:
                raise ShapeError(
                    self._describe_change(
                        like, one, number, "shape", "Return a state of the same shapes in every step."
                    )
                )
            if one.dtype != like.dtype:
                remedy = (
                    f"Begin with the dtype that the step returns, `.to({one.dtype})`, or return `.to({like.dtype})`."
                )
                raise DtypeError(self._describe_change(like, one, number, "dtype", remedy))

    def _check_outputs(self, outputs: Sequence[Tensor], number: int) -> None:
        for like, one in zip(self.outputs, outputs, strict=True):
            if one.shape != like.shape or one.dtype != like.dtype:
                kind, what = (ShapeError, "shape") if one.shape != like.shape else (DtypeError, "dtype")
                remedy = "Outputs of all steps are stacked, so they are alike in each."
                raise kind(self._describe_change(like, one, number, what, remedy))

    def check_finite(
        self,
        number: int,
        state: Sequence[Tensor],
        inputs: Sequence[Tensor],
        parameters: Sequence[Tensor],
        following: Sequence[Tensor],
        outputs: Sequence[Tensor],
    ) -> None:
        """Raise CheckError if the results of step `number`, `following` and `outputs`, have infinities or NaN.

        The message names the operation that produced the first one.
        """
        pairs = (*zip(self.state, following, strict=True), *zip(self.outputs, outputs, strict=True))
        for like, one in pairs:
            if one.dtype.is_floating_point and not bool(one.isfinite().all()):
                with self.random.preserve_states():
                    rows = describing_origin(self.step, state, inputs, parameters)
                raise CheckError(self._explain_origin(number, like.name, one, (*state, *inputs), rows))

    def _explain_origin(
        self, number: int, name: str, tensor: Tensor, before: Sequence[Tensor], rows: list[tuple[str, str]]
    ) -> str:
        odd = ~tensor.isfinite()
        place = tuple(odd.nonzero()[0].tolist())
        was_finite = all(bool(one.isfinite().all()) for one in before if one.dtype.is_floating_point)
        words = f"step {number} of a scan over `{self.step.name}` made numbers that are not finite"
        rows = [
            ("first", f"{name}{list(place) if place else ''} = {tensor[place].item()}"),
            ("in all", f"{int(odd.sum())} of {odd.numel()}"),
            ("before", "state and inputs were finite" if was_finite else "state or inputs were not finite either"),
            *rows,
        ]
        remedy = f"Scan {number} steps, `length={number}`, for the state before it. To stop at the line: {DEBUGGING}."
        return refusal(words, rows, remedy)

    def _describe_change(self, like: Like, one: Tensor, number: int, what: str, remedy: str) -> str:
        words = f"step {number} of a scan over `{self.step.name}` changed the {what} of `{like.name}`"
        return refusal(words, [("before", str(like)), ("after", str(Like("", one.shape, one.dtype)))], remedy)


def is_differentiable(tensor: Any) -> bool:
    """Return True for a tensor of floats or complex numbers, which can have a gradient."""
    return isinstance(tensor, Tensor) and (tensor.is_floating_point() or tensor.is_complex())


def insert_missing(values: Iterable[Any], is_there: Sequence[bool]) -> list[Any]:
    """Return one entry for each flag: the next of the values if it is True, None otherwise."""
    remaining = iter(values)
    return [next(remaining) if flag else None for flag in is_there]
