"""Backward passes of one reverse kernel for each kernel of the op: the engine's own, or a user's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..._config import config
from .._case import Case
from .._executor import Layout, Make
from .._stage import Stage
from .._steps import Situation, StageLaunch, Use
from ._pullback import Ends, Pullback
from ._reverse import Reverse, ReverseAt

Memory = tuple[Literal["value", "gradient"], str]
"""Memory of an array: its values, or its gradient."""
Rerun = Literal["", "fresh", "final", "empty"]
"""The values that an array starts from that is written again: none, zeros, those that the forward pass left, any."""


@dataclass(frozen=True)
class Argument:
    """An array argument of a launch: the kernel's parameter, its memory, and its gradient's array."""

    parameter: str
    memory: Memory
    gradient: str | None = None


@dataclass(frozen=True)
class Request:
    """One launch that a reverse pass wants."""

    stage: Stage
    adjoint: bool
    arguments: tuple[Argument, ...]


class KernelReverse(Reverse, ReverseAt):
    """A source of gradients that is one kernel for each of the op's, on memory of ours; the same for every call."""

    def at(self, case: Case) -> ReverseAt:
        return self

    def stack(self, stage: Stage, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> int:
        """Depth of the gradient stack for a stage's reverse kernel; 0 where there is none to set."""
        return 0

    def backward(
        self, situation: Situation, active: frozenset[str], *, is_serial: bool, given: frozenset[str] | None = None
    ) -> Pullback:
        return _Program(situation, self, active).pullback(situation, is_serial=is_serial)

    @abstractmethod
    def gives(self, active: frozenset[str]) -> frozenset[str]:
        """Inputs and scratch for which gradient memory is needed: `active`, or more where the kernel writes more."""

    @abstractmethod
    def starts_empty(self, name: str) -> bool:
        """Whether an input's gradient memory need not be zero."""

    @abstractmethod
    def requests(self, active: frozenset[str], floats: frozenset[str]) -> tuple[Request, ...]:
        """The launches, in order. `floats` are the arrays that can have a gradient in this call."""

    @abstractmethod
    def spoils(self, output: str) -> bool:
        """Whether the reverse pass writes to this output's adjoint."""

    @abstractmethod
    def reruns(self, name: str) -> Rerun:
        """For an array without a gradient that the reverse pass writes again: the values it must start from."""

    @abstractmethod
    def sums_over_batch(self, name: str) -> bool:
        """Whether an unbatched input's gradient may be one buffer for the whole batch."""


class _Program:
    """Such a backward pass as a program: where each array's values and gradient come from."""

    def __init__(self, situation: Situation, reverse: KernelReverse, active: frozenset[str]) -> None:
        signature, floats = situation.signature, situation.floats
        self._reverse = reverse
        self._active = active
        self._floats = floats
        self._batched = situation.batched
        self._is_batch = situation.batch is not None
        self._inputs = frozenset(signature.arrays)
        self._results = signature.arrays
        self._op = signature.op
        self._read = reverse.reads(active & floats)
        self._gives = reverse.gives(active) & floats
        numbered = enumerate(signature.outputs)
        self._outputs = tuple((number, name, reverse.spoils(name)) for number, name in numbered if name in floats)
        self._with_gradient = self._gives | {name for _, name, _ in self._outputs}
        self._makes: list[Make] = []
        self._reads: list[tuple[str, bool]] = []
        for name in situation.shapes:
            self._place(name)
        self._makes += [
            Make(_gradient(name), name, not reverse.starts_empty(name), self._is_widened(name))
            for name in situation.shapes
            if name in self._gives
        ]

    def _place(self, name: str) -> None:
        """Say where an array's values come from, where somebody reads or writes them.

        A reverse kernel drops every store to an array that has an adjoint, and what is not saved
        it does not read. Such an argument is given its gradient's memory, which spares making any.
        """
        rerun = self._reverse.reruns(name)
        is_read = name in self._read
        if rerun in ("fresh", "empty"):
            self._makes.append(Make(name, name, is_zero=rerun == "fresh"))
        elif is_read:
            self._reads.append((name, rerun == "final"))
        elif name not in self._with_gradient or rerun or config().poison:
            self._makes.append(Make(name, name, is_zero=False))

    def pullback(self, situation: Situation, *, is_serial: bool) -> Pullback:
        """The program for a first set of sizes."""
        given = [name for name, _ in self._reads] + [_gradient(name) for _, name, _ in self._outputs]
        requests = self._reverse.requests(self._active, self._floats)
        launches = tuple(self._launch(request, is_serial) for request in requests)
        layout = Layout(self._op, situation.dtypes, tuple(given), tuple(self._makes), launches)
        results = tuple(
            (layout.places[_gradient(name)], self._is_widened(name)) if name in self._active else None
            for name in self._results
        )
        return Pullback.of(layout, Ends(tuple(self._reads), self._outputs, results), situation)

    def _launch(self, request: Request, is_serial: bool) -> StageLaunch:
        # An engine differentiates the user's own loops.
        serial = is_serial and not request.adjoint
        stack = None
        if request.adjoint and self._reverse.depends_on_sizes:
            stack = lambda situation: self._stack(situation, request.stage)  # noqa: E731
        return StageLaunch(request.stage, self._uses(request), request.adjoint, serial, stack)

    def _stack(self, situation: Situation, stage: Stage) -> int:
        shapes = {name: situation.core(name) for name in situation.shapes}
        return self._reverse.stack(stage, shapes, {**situation.fixed, **situation.templates})

    def _uses(self, request: Request) -> tuple[Use, ...]:
        uses = []
        known = {name for name, _ in self._reads} | {one.name for one in self._makes}
        for argument in request.arguments:
            kind, name = argument.memory
            memory = name if kind == "value" and name in known else _gradient(name)
            gradient = _gradient(argument.gradient) if argument.gradient else ""
            is_batched = name in self._batched or (kind == "gradient" and self._is_widened(name))
            uses.append(Use(argument.parameter, name, memory, gradient, is_batched))
        return tuple(uses)

    def _is_widened(self, name: str) -> bool:
        """Whether an unbatched input's gradient gets one buffer for each sample, to be summed after."""
        is_shared = self._is_batch and name not in self._batched
        return is_shared and name in self._inputs and not self._reverse.sums_over_batch(name)


def _gradient(name: str) -> str:
    """The name of a gradient's memory, which no array can have."""
    return f"gradient of {name}"
