"""Backward passes with one reverse kernel for each kernel of the op: the engine's own, or a user's."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from ..._config import config
from ...compiling import Stage
from .._key import CallKey
from .._routine import Cotangent, Make, Result, Routine, Saved
from .._steps import StageLaunch, Use
from ._reverse import Reverse, ReverseAt, Wish

Memory = tuple[Literal["value", "gradient"], str]
"""The memory of an array's values, or of its gradient: the kind, and the array."""
Rerun = Literal["", "fresh", "final", "empty"]
"""Initial values of an array whose stores run again: "" if none do, zeros, those after the forward pass, or any."""


@dataclass(frozen=True)
class Argument:
    """An array argument of a launch: the kernel's parameter, its memory, and the array whose gradient goes with it."""

    parameter: str
    memory: Memory
    gradient: str | None = None


@dataclass(frozen=True)
class Request:
    """A launch that a reverse pass needs."""

    stage: Stage
    adjoint: bool
    arguments: tuple[Argument, ...]


class KernelReverse(Reverse, ReverseAt):
    """A source of gradients with one reverse kernel for each kernel of the op; the same for every call."""

    def specialize(self, key: CallKey) -> ReverseAt:
        return self

    def backward(self, key: CallKey, wish: Wish) -> Routine:
        return _RoutineBuilder(key, self, wish.active).routine(wish.stacks)

    @abstractmethod
    def find_gradient_arrays(self, active: frozenset[str]) -> frozenset[str]:
        """Return the inputs and scratch that need gradient memory: `active`, and what else the kernel writes to."""

    @abstractmethod
    def starts_empty(self, name: str) -> bool:
        """Return True if an input's gradient memory need not be zeroed."""

    @abstractmethod
    def list_requests(self, active: frozenset[str], floats: frozenset[str]) -> tuple[Request, ...]:
        """Return the launches of the reverse pass, in order. `floats` are the arrays that can have a gradient."""

    @abstractmethod
    def writes_adjoint(self, output: str) -> bool:
        """Return True if the reverse pass writes to this output's adjoint."""

    @abstractmethod
    def choose_initial_values(self, name: str) -> Rerun:
        """Return the initial values of an array whose stores the reverse pass runs again; "" if it does not."""

    @abstractmethod
    def sums_over_batch(self, name: str) -> bool:
        """Return True if an unbatched input's gradient may be one buffer to which all samples of the batch add."""


class _RoutineBuilder:
    """Builds the routine of a backward pass with one reverse kernel for each kernel of the op.

    It chooses the memory of each array's values and gradient.
    """

    def __init__(self, key: CallKey, reverse: KernelReverse, active: frozenset[str]) -> None:
        signature, floats = key.signature, key.floats
        self._reverse = reverse
        self._active = active
        self._floats = floats
        self._batched = key.batched_arrays
        self._is_batch = key.sizing.batch is not None
        self._inputs = frozenset(signature.arrays)
        self._results = signature.arrays
        self._stages = signature.stages
        self._read = reverse.find_reads(active & floats)
        self._gives = reverse.find_gradient_arrays(active) & floats
        self._outputs = tuple(
            Cotangent(_name_gradient(name), name, number, reverse.writes_adjoint(name))
            for number, name in enumerate(signature.outputs)
            if name in floats
        )
        self._with_gradient = self._gives | {one.like for one in self._outputs}
        self._makes: list[Make] = []
        self._reads: list[Saved] = []
        for name in signature.all_arrays:
            self._place(name)
        self._makes += [
            Make(_name_gradient(name), name, not reverse.starts_empty(name), self._is_widened(name))
            for name in signature.all_arrays
            if name in self._gives
        ]

    def _place(self, name: str) -> None:
        """Choose the memory of an array's values, if a kernel reads or writes them.

        A reverse kernel drops every store to an array that has an adjoint, and reads only what is saved. So such an
        argument can be given the memory of its gradient, which saves an allocation; but not if that memory has a batch
        dim that the argument lacks, on which a launch ended the process.
        """
        rerun = self._reverse.choose_initial_values(name)
        is_read = name in self._read
        if rerun in ("fresh", "empty"):
            self._makes.append(Make(name, name, is_zero=rerun == "fresh"))
        elif is_read:
            self._reads.append(Saved(name, rerun == "final"))
        elif name not in self._with_gradient or rerun or self._is_widened(name) or config().poison:
            self._makes.append(Make(name, name, is_zero=False))

    def routine(self, stacks: tuple[int, ...]) -> Routine:
        """Return the routine. `stacks` are the depths of the gradient stacks, one for each kernel."""
        depths = dict(zip(self._stages, stacks, strict=False))
        launches = tuple(
            StageLaunch(one.stage, self._uses(one), one.adjoint, stack=depths.get(one.stage, 0))
            for one in self._reverse.list_requests(self._active, self._floats)
        )
        results = tuple(
            Result(_name_gradient(name), self._is_widened(name)) if name in self._active else None
            for name in self._results
        )
        return Routine((*self._reads, *self._outputs), tuple(self._makes), launches, results, {})

    def _uses(self, request: Request) -> tuple[Use, ...]:
        uses = []
        known = {one.name for one in (*self._reads, *self._makes)}
        for argument in request.arguments:
            role, name = argument.memory
            memory = name if role == "value" and name in known else _name_gradient(name)
            gradient = _name_gradient(argument.gradient) if argument.gradient else ""
            is_batched = name in self._batched or (role == "gradient" and self._is_widened(name))
            uses.append(Use(argument.parameter, name, memory, gradient, is_batched))
        return tuple(uses)

    def _is_widened(self, name: str) -> bool:
        """Return True if an unbatched input's gradient gets one buffer for each sample, which are summed afterwards."""
        is_shared = self._is_batch and name not in self._batched
        return is_shared and name in self._inputs and not self._reverse.sums_over_batch(name)


def _name_gradient(name: str) -> str:
    """Return the name of the memory of an array's gradient, which no array can have."""
    return f"gradient of {name}"
