"""Plan: everything about a call that does not depend on where its memory lies.

Made once for a combination of sizes, dtypes and wishes for gradients, and then run as a
short straight list: allocate, take pointers, launch. Nothing here is decided twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._config import config
from ..engines import ArrayArgument
from ._buffers import Buffer, adjoint_of, private, unread, zeros
from ._reverse import Request, Reverse
from ._signature import Signature, element_of
from ._stage import ArrayType, Stage, Variant
from ._streams import in_order

SERIAL_LIMIT = 400e-6
"""Seconds. A serial launch that takes longer would have been worth waking the thread pool for."""
SLOW_LAUNCHES = 4
"""That many in a row, and the thread pool is used: the first is always slow, others by accident."""


@dataclass(frozen=True)
class Step:
    """One launch.

    `entries` are (slot, place of the memory, bytes, shape, place of the gradient or -1), places
    being those in the list of pointers. `repeats` > 1 where a kernel that cannot be batched is
    launched once a sample; `strides` then lead from one sample's memory to the next one's.
    """

    launch: Any
    entries: tuple[tuple[Any, int, int, tuple[int, ...], int], ...]
    strides: tuple[tuple[int, int], ...]
    scalars: tuple[tuple[str, Any, str], ...]
    repeats: int

    def run(self, pointers: Sequence[int], scalars: Mapping[str, Any]) -> None:
        """Launch. The last of `pointers` is 0, and stands for "no gradient"."""
        values = [(setter, slot, scalars[name]) for setter, slot, name in self.scalars]
        if self.repeats == 1:
            self.launch([(slot, pointers[i], size, shape, pointers[g]) for slot, i, size, shape, g in self.entries], values)
            return
        for sample in range(self.repeats):
            self.launch(self._sample(pointers, sample), values)

    def _sample(self, pointers: Sequence[int], sample: int) -> list[ArrayArgument]:
        moved = []
        for (slot, i, size, shape, g), (stride, gradient_stride) in zip(self.entries, self.strides, strict=True):
            gradient = pointers[g] + sample * gradient_stride if g >= 0 else 0
            moved.append((slot, pointers[i] + sample * stride, size, shape, gradient))
        return moved


@dataclass(frozen=True)
class Situation:
    """What a plan is made for.

    Attributes:
        buffers: every array by name: inputs, then outputs, then scratch.
        batch: size of the flat batch dimension, None without one.
        batched: arrays that have it.
    """

    buffers: dict[str, Buffer]
    device: torch.device
    batch: int | None
    batched: frozenset[str]
    fingerprints: tuple[tuple[Any, ...], ...]
    templates: Mapping[str, Any]


class Plan:
    """How to run one op in one situation, forward and backward."""

    def __init__(self, signature: Signature, reverse: Reverse, situation: Situation) -> None:
        self.signature = signature
        self.reverse = reverse
        self.situation = situation
        self.device = situation.device
        buffers = situation.buffers
        self.inputs = tuple(buffers[name] for name in signature.arrays)
        self.outputs = tuple(buffers[name] for name in signature.outputs)
        self.scratch = tuple(buffers[name] for name in signature.scratch)
        self.floats = frozenset(name for name, buffer in buffers.items() if buffer.dtype.is_floating_point)
        self.names = tuple(buffers)
        self.integer_outputs = tuple(i for i, output in enumerate(self.outputs) if output.name not in self.floats)
        self._empty = frozenset(n for n in signature.outputs if signature.init[n] == "empty")
        self._places = {name: place for place, name in enumerate(buffers)}
        self.elements = sum(_elements(buffer.shape) for buffer in buffers.values())
        self.is_serial = self.device.type == "cpu" and self.elements < config().serial_below
        self._slow = 0
        self._forward: tuple[Step, ...] = ()
        self._backward: dict[frozenset[str], tuple[Step, ...]] = {}
        self._saved: dict[frozenset[str], tuple[int, ...]] = {}

    # Forward ------------------------------------------------------------------------------
    def forward(self, inputs: Sequence[torch.Tensor], scalars: Mapping[str, Any]) -> list[torch.Tensor]:
        """Run the kernels. Returns all arrays: inputs as given, then outputs, then scratch."""
        steps = self._forward or self.prepare()
        device = self.device
        arrays = list(inputs)
        for buffer in self.outputs:
            arrays.append(unread(buffer, device) if buffer.name in self._empty else zeros(buffer, device))
        for buffer in self.scratch:
            arrays.append(zeros(buffer, device))
        pointers = [array.data_ptr() for array in arrays]
        pointers.append(0)
        self._launch(steps, pointers, scalars)
        return arrays

    def prepare(self) -> tuple[Step, ...]:
        """Compile what the forward pass launches."""
        self._forward = tuple(self._forward_step(stage) for stage in self.signature.stages)
        return self._forward

    def _forward_step(self, stage: Stage) -> Step:
        arguments = [(name, self._places[name], -1, name, None) for name in stage.arrays]
        return self._step(stage, False, arguments, frozenset(self.situation.batched))

    def _launch(self, steps: Sequence[Step], pointers: Sequence[int], scalars: Mapping[str, Any]) -> None:
        if self.device.type == "cuda":
            in_order(self.device, lambda: self._run(steps, pointers, scalars))
        elif self.is_serial:
            begin = time.perf_counter()
            self._run(steps, pointers, scalars)
            self._slow = self._slow + 1 if time.perf_counter() - begin > SERIAL_LIMIT else 0
            if self._slow >= SLOW_LAUNCHES:
                self.go_parallel()
        else:
            self._run(steps, pointers, scalars)

    def _run(self, steps: Sequence[Step], pointers: Sequence[int], scalars: Mapping[str, Any]) -> None:
        for step in steps:
            step.run(pointers, scalars)

    def go_parallel(self) -> None:
        """Use the thread pool from now on: the work was more than its size let expect."""
        self.is_serial = False
        self._forward = ()
        self._backward = {}

    # Backward -----------------------------------------------------------------------------
    def saved(self, active: frozenset[str]) -> tuple[int, ...]:
        """Places, in the list of all arrays, of those that the backward pass reads."""
        if active not in self._saved:
            self.reverse.check(active)
            read = self.reverse.reads(active & self.floats)
            self._saved[active] = tuple(place for name, place in self._places.items() if name in read)
        return self._saved[active]

    def backward(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        active: frozenset[str],
        scalars: Mapping[str, Any],
    ) -> list[torch.Tensor | None]:
        """Gradients of the inputs, in their order; None for those that are not `active`."""
        steps = self._backward.get(active)
        if steps is None:
            steps = self._backward[active] = self._backward_steps(active)
        values = [self._value(buffer, saved) for buffer in self.situation.buffers.values()]
        gradients = self._gradients(cotangents, active)
        pointers = [value.data_ptr() for value in values]
        pointers += [gradient.data_ptr() if gradient is not None else 0 for gradient in gradients]
        pointers.append(0)
        self._launch(steps, pointers, scalars)
        return [self._finished(b, g) if b.name in active else None for b, g in zip(self.inputs, gradients, strict=False)]

    def _backward_steps(self, active: frozenset[str]) -> tuple[Step, ...]:
        return tuple(self._backward_step(request) for request in self.reverse.requests(active, self.floats))

    def _backward_step(self, request: Request) -> Step:
        count = len(self._places)
        places, batched = [], set()
        for argument in request.arguments:
            kind, name = argument.memory
            place = self._places[name] + (count if kind == "gradient" else 0)
            gradient = self._places[argument.gradient] + count if argument.gradient else -1
            places.append((argument.parameter, place, gradient, name, argument.gradient))
            if name in self.situation.batched or (kind == "gradient" and self._is_widened(name)):
                batched.add(argument.parameter)
        return self._step(request.stage, request.adjoint, places, frozenset(batched))

    def _value(self, buffer: Buffer, saved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        rerun = self.reverse.reruns(buffer.name) if buffer.name not in self.floats else ""
        if rerun == "fresh":
            return zeros(buffer, self.device)
        if buffer.name not in saved:
            return unread(buffer, self.device)
        return private(saved[buffer.name]) if rerun else saved[buffer.name]

    def _gradients(self, cotangents: Sequence[torch.Tensor | None], active: frozenset[str]) -> list[torch.Tensor | None]:
        given = self.reverse.gives(active)
        found: list[torch.Tensor | None] = []
        for buffer in self.inputs:
            wide = Buffer(buffer.name, self._widened(buffer), buffer.dtype)
            found.append(zeros(wide, self.device) if buffer.name in given and buffer.name in self.floats else None)
        for buffer, cotangent in zip(self.outputs, cotangents, strict=True):
            is_spoiled = self.reverse.spoils(buffer.name)
            has = buffer.name in self.floats
            found.append(adjoint_of(cotangent, buffer, self.device, is_spoiled) if has else None)
        found += [zeros(buffer, self.device) if buffer.name in self.floats else None for buffer in self.scratch]
        return found

    def _is_widened(self, name: str) -> bool:
        """Whether an unbatched input's gradient gets one buffer for each sample, to be summed after."""
        situation = self.situation
        is_shared = situation.batch is not None and name not in situation.batched
        return is_shared and name in self.signature.arrays and not self.reverse.sums_over_batch(name)

    def _widened(self, buffer: Buffer) -> tuple[int, ...]:
        return (self.situation.batch or 0, *buffer.shape) if self._is_widened(buffer.name) else buffer.shape

    def _finished(self, buffer: Buffer, gradient: torch.Tensor | None) -> torch.Tensor | None:
        return gradient.sum(0) if gradient is not None and self._is_widened(buffer.name) else gradient

    # Steps --------------------------------------------------------------------------------
    def _step(self, stage: Stage, adjoint: bool, arguments: list[tuple[str, int, int, str, str | None]], batched: frozenset[str]) -> Step:
        """One launch. Each argument: parameter, memory's place, gradient's place or -1, the array's name, its gradient's."""
        situation = self.situation
        types = {p: self._type(stage, p, name, gradient is not None) for p, _, _, name, gradient in arguments}
        one = self._variant(stage, types, frozenset(), adjoint)
        many = self._variant(stage, types, batched, adjoint)
        is_looped = situation.batch is not None and bool(batched) and bool(stage.batch_refusal(many))
        compiled = stage.compiled(one if is_looped else many, situation.templates, self.signature.op)
        entries, strides = [], []
        for parameter, place, gradient_place, name, _ in arguments:
            array, is_batched = types[parameter], parameter in batched
            core = self._core(name)
            shape = core[: len(core) - len(array.element)]
            nbytes = _elements(core) * array.dtype.itemsize
            if is_batched and not is_looped:
                shape, nbytes = (situation.batch or 0, *shape), nbytes * (situation.batch or 0)
            stride = nbytes if is_batched and is_looped else 0
            entries.append((compiled.slots[parameter], place, nbytes, shape, gradient_place))
            strides.append((stride, stride))
        scalars = tuple(
            (p.setter, compiled.slots[name], name)
            for name, p in stage.parameters.items()
            if p.kind in ("scalar", "matrix") and name not in types
        )
        repeats = (situation.batch or 0) if is_looped else 1
        return Step(compiled.launch, tuple(entries), tuple(strides), scalars, repeats)

    def _variant(self, stage: Stage, types: Mapping[str, ArrayType], batched: frozenset[str], adjoint: bool) -> Variant:
        arrays = tuple(
            (name, ArrayType(t.dtype, t.rank, t.element, t.has_gradient, name in batched)) for name, t in types.items()
        )
        place = self.signature.stages.index(stage) if stage in self.signature.stages else 0
        own = stage in self.signature.stages
        picture = self.situation.fingerprints[place] if own else stage.fingerprint(self.situation.templates)
        return Variant(arrays, adjoint, self.is_serial, picture)

    def _type(self, stage: Stage, parameter: str, name: str, has_gradient: bool) -> ArrayType:
        core = self._core(name)
        element = element_of(self.signature, stage, parameter, core)
        return ArrayType(self.situation.buffers[name].dtype, len(core) - len(element), element, has_gradient)

    def _core(self, name: str) -> tuple[int, ...]:
        """An array's shape without the batch dimension."""
        shape = self.situation.buffers[name].shape
        return shape[1:] if name in self.situation.batched else shape


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


