"""Pullback: a backward pass by one reverse kernel for each kernel of the op.

Says, once, where each array's values and gradient come from in a backward pass; then fills
in one call's memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..._config import config
from .._buffers import Buffer, adjoint_of, private, unread, unread_maker, zeros, zeros_maker
from .._case import Case
from .._stage import Stage
from .._steps import Situation, Step, Use, product, resize, step
from ._reverse import Backward, Launches, Reverse, ReverseAt

Place = tuple[Literal["value", "gradient"], str]
"""Memory of an array: its values, or its gradient."""
Rerun = Literal["", "fresh", "final", "empty"]
"""The values that an array starts from that is written again: none, zeros, those that the forward pass left, any."""
Recipe = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]


SMALL = 4096
"""Elements of a buffer that a pullback may keep."""


@dataclass(frozen=True)
class Argument:
    """An array argument of a launch: the kernel's parameter, its memory, and its gradient's array."""

    parameter: str
    memory: Place
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
    ) -> Backward:
        return Pullback(situation, self, active, is_serial=is_serial)

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


class Pullback:
    """How to run a backward pass. Memory is laid out as all values, then all gradients."""

    def __init__(
        self,
        situation: Situation,
        reverse: KernelReverse,
        active: frozenset[str],
        *,
        is_serial: bool,
        first: Sequence[Step] = (),
    ) -> None:
        signature, buffers = situation.signature, situation.buffers
        floats = situation.floats
        self._situation = situation
        self._reverse = reverse
        self._device = situation.device
        self._places = {name: place for place, name in enumerate(buffers)}
        count = len(buffers)
        self._blank: list[torch.Tensor | None] = [None] * (2 * count)
        recipes = ((place, self._recipe(buffer, active, floats)) for place, buffer in enumerate(buffers.values()))
        self._values = tuple((place, recipe) for place, recipe in recipes if recipe is not None)
        given = reverse.gives(active) & floats
        self._given = tuple(
            (count + place, self._maker(name)(self._wide(buffer), situation.device))
            for place, (name, buffer) in enumerate(buffers.items())
            if name in given
        )
        self._outputs = tuple(
            (count + self._places[name], buffers[name] if name in floats else None, reverse.spoils(name))
            for name in signature.outputs
        )
        self._results = tuple(
            (count + place, self._is_widened(name)) if name in active else None
            for place, name in enumerate(signature.arrays)
        )
        self._active = active
        self._is_serial = is_serial
        self.steps: tuple[Step, ...] = resize(first, situation.shapes) or tuple(
            self._step(request, is_serial) for request in reverse.requests(active, floats)
        )

    def resize(self, situation: Situation) -> Pullback:
        """The same backward pass for other sizes; the depth of an engine's gradient stack may follow from them."""
        first = () if self._reverse.depends_on_sizes else self.steps
        return Pullback(situation, self._reverse, self._active, is_serial=self._is_serial, first=first)

    def run(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        scalars: Mapping[str, Any],
        launch: Launches,
    ) -> list[torch.Tensor | None]:
        """Gradients of the inputs, in their order; None for those that are not active."""
        memory = self.memory(saved, cotangents)
        pointers = [0 if tensor is None else tensor.data_ptr() for tensor in memory]
        pointers.append(0)
        launch(self.steps, pointers, scalars)
        return self.gradients(memory)

    def memory(
        self, saved: Mapping[str, torch.Tensor], cotangents: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """One call's memory: every array's values, then every array's gradient or None."""
        memory = self._blank.copy()
        for place, recipe in self._values:
            memory[place] = recipe(saved)
        for place, make in self._given:
            memory[place] = make()
        for (place, buffer, is_spoiled), cotangent in zip(self._outputs, cotangents, strict=True):
            if buffer is not None:
                memory[place] = adjoint_of(cotangent, buffer, self._device, is_spoiled)
        return memory

    def gradients(self, memory: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The inputs' gradients out of a call's memory, in order."""
        found: list[torch.Tensor | None] = []
        for result in self._results:
            gradient = None if result is None else memory[result[0]]
            found.append(gradient.sum(0) if gradient is not None and result is not None and result[1] else gradient)
        return found

    def _recipe(self, buffer: Buffer, active: frozenset[str], floats: frozenset[str]) -> Recipe | None:
        """Where an array's values come from in a backward pass; None where nobody reads or writes them.

        A reverse kernel drops every store to an array that has an adjoint, and what is not saved
        it does not read. Such an argument is given its gradient's memory, which spares making any.
        """
        name, device, signature = buffer.name, self._device, self._situation.signature
        is_read = name in self._reverse.reads(active & floats)
        rerun = self._reverse.reruns(name)
        if rerun == "fresh":
            return lambda saved: zeros(buffer, device)
        if rerun == "empty":
            return lambda saved: unread(buffer, device)
        if not is_read:
            has_gradient = name in floats and (name in self._reverse.gives(active) or name in signature.outputs)
            is_idle = has_gradient and not rerun and not config().poison
            return None if is_idle else self._unread_recipe(buffer)
        if rerun == "final":
            return lambda saved: private(saved[name])
        return lambda saved: saved[name]

    def _maker(self, name: str) -> Callable[[Buffer, torch.device], Callable[[], torch.Tensor]]:
        return unread_maker if self._reverse.starts_empty(name) else zeros_maker

    def _unread_recipe(self, buffer: Buffer) -> Recipe:
        """Memory that nobody reads: one piece for all calls while it is small, for making it takes 1 us."""
        if product(buffer.shape) > SMALL or config().poison:
            return lambda saved: unread(buffer, self._device)
        memory = unread(buffer, self._device)
        return lambda saved: memory

    def _step(self, request: Request, is_serial: bool) -> Step:
        situation, stage = self._situation, request.stage
        shapes = {name: situation.core(name) for name in situation.buffers}
        values = {**situation.fixed, **situation.templates}
        stack = self._reverse.stack(stage, shapes, values) if request.adjoint else 0
        uses = self._uses(request)
        is_serial = is_serial and not request.adjoint  # an engine differentiates the user's own loops
        return step(situation, stage, uses, adjoint=request.adjoint, is_serial=is_serial, stack=stack)

    def _uses(self, request: Request) -> list[Use]:
        uses = []
        for argument in request.arguments:
            kind, name = argument.memory
            count = len(self._places)
            gradient = self._places[argument.gradient] + count if argument.gradient else -1
            has_values = kind == "value" and self._places[name] in dict(self._values)
            place = self._places[name] if has_values else self._places[name] + count
            is_batched = name in self._situation.batched or (kind == "gradient" and self._is_widened(name))
            uses.append(Use(argument.parameter, name, place, gradient, is_batched))
        return uses

    def _is_widened(self, name: str) -> bool:
        """Whether an unbatched input's gradient gets one buffer for each sample, to be summed after."""
        situation = self._situation
        is_shared = situation.batch is not None and name not in situation.batched
        return is_shared and name in situation.signature.arrays and not self._reverse.sums_over_batch(name)

    def _wide(self, buffer: Buffer) -> Buffer:
        if not self._is_widened(buffer.name):
            return buffer
        return Buffer(buffer.name, (self._situation.batch or 0, *buffer.shape), buffer.dtype)
