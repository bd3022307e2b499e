"""Job: one scan, ready to run: its step, the number of steps, and the schedule of kept states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._errors import ArgumentError, DtypeError, ShapeError, refusal
from ._environment import FirstCalls, RandomStates, Surroundings
from ._schedule import Schedule
from ._steps import Step


class Arguments(NamedTuple):
    """The tensors of a scan by kind, of which autograd sees one list."""

    state: Sequence[Any]
    inputs: Sequence[Any]
    parameters: Sequence[Any]
    captured: Sequence[Any] = ()

    @property
    def flat(self) -> tuple[Any, ...]:
        """All of them."""
        return (*self.state, *self.inputs, *self.parameters, *self.captured)


class Like(NamedTuple):
    """What all tensors in one place of the state, or of the outputs, have in common."""

    name: str
    shape: torch.Size
    dtype: torch.dtype

    def __str__(self) -> str:
        """For messages."""
        return f"{tuple(self.shape)} {str(self.dtype).removeprefix('torch.')}"


@dataclass(eq=False)
class Job:
    """One scan.

    Attributes:
        step: what is run.
        length: how often.
        every: results hold the state after every n-th step; None for the last state alone.
        unroll: how many steps are one stretch, which the backward pass records at once.
        schedule: which states are kept, in stretches.
        sizes: how many tensors state, inputs and parameters have.
        state, outputs: what their tensors are like.
        random, surroundings: what the steps depend on besides their arguments.
        changes_state: whether the step updates the state that it is given in place.
        offloads: whether states are kept in the host's memory.
        checks: whether to look for numbers that are not finite.
        needs_gradient: which arguments need one; empty where none does.
        keeps_graphs: whether the forward pass keeps what autograd records, besides or instead of states.
        begin: a note of the random numbers that the first step draws.
        checkpoints: what the forward pass kept; None when a backward pass has used it up.
        plan: the schedule for another state, of a batch.
        batches: jobs of batches of it, by their sizes and dims.
        first: what the ops of step 0 depended on besides their arguments.
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
        """Run a step. Raises GradientError where step 0 would not be what it was at first."""
        if number:
            return self.step(state, inputs, parameters)
        with self.first.compare():
            return self.step(state, inputs, parameters)

    def arguments(self, tensors: Sequence[Any]) -> Arguments:
        """The one list of tensors, or of their gradients, by kind."""
        state, inputs, parameters = self.sizes
        ends = state, state + inputs, state + inputs + parameters
        return Arguments(tensors[: ends[0]], tensors[ends[0] : ends[1]], tensors[ends[1] : ends[2]], tensors[ends[2] :])

    @property
    def rows(self) -> int:
        """How many states the results hold, where they hold more than the last one."""
        return self.length // self.every if self.every else 1

    def row(self, position: int) -> int | None:
        """The row of the results that holds the state at a position; None where none does."""
        if self.every is None or position == 0 or position % self.every:
            return None
        return position // self.every - 1

    def steps(self, stretch: int) -> range:
        """The steps of a stretch."""
        return range(stretch * self.unroll, min((stretch + 1) * self.unroll, self.length))

    def check_state(self, state: Sequence[Any], number: int) -> None:
        """Refuse a state that is not like the one before. Step `number` made it."""
        for like, one in zip(self.state, state, strict=True):
            if not isinstance(one, Tensor):
                words = (
                    f"step {number} of a scan over `{self.step.name}` returned something that is not a tensor "
                    f"as `{like.name}`"
                )
                raise ArgumentError(refusal(words, [("got", f"{type(one).__name__} {one!r:.60}")], "Return tensors."))
            if one.shape != like.shape:
                raise ShapeError(
                    self._describe_change(like, one, number, "shape", "The state keeps its shapes over all steps.")
                )
            if one.dtype != like.dtype:
                remedy = f"Begin with the dtype that the step makes, `.to({one.dtype})`, or return `.to({like.dtype})`."
                raise DtypeError(self._describe_change(like, one, number, "dtype", remedy))

    def check_outputs(self, outputs: Sequence[Tensor], number: int) -> None:
        """Refuse outputs that are not like those of the first step."""
        for like, one in zip(self.outputs, outputs, strict=True):
            if one.shape != like.shape or one.dtype != like.dtype:
                kind, what = (ShapeError, "shape") if one.shape != like.shape else (DtypeError, "dtype")
                remedy = "Outputs of all steps are stacked, so they are alike in each."
                raise kind(self._describe_change(like, one, number, what, remedy))

    def _describe_change(self, like: Like, one: Tensor, number: int, what: str, remedy: str) -> str:
        words = f"step {number} of a scan over `{self.step.name}` changed the {what} of `{like.name}`"
        return refusal(words, [("before", str(like)), ("after", str(Like("", one.shape, one.dtype)))], remedy)


def is_differentiable(tensor: Any) -> bool:
    """Whether a tensor holds numbers that have a gradient."""
    return isinstance(tensor, Tensor) and (tensor.is_floating_point() or tensor.is_complex())
