"""Steps: the launches of a plan, put together from compiled kernels and the sizes of a call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from .._lazy import lazy
from ..engines import ArrayArgument, Launch
from ._buffers import Buffer
from ._elements import check_element, element_of
from ._signature import Signature
from ._stage import Stage
from ._variant import ArrayType, Variant


@dataclass(frozen=True)
class Situation:
    """What a plan is made for.

    Attributes:
        buffers: every array by name: inputs, then outputs, then scratch.
        batch: size of the flat batch dimension, None without one.
        batched: arrays that have it.
        fixed: scalar arguments that a plan depends on: those that dims and loop bounds are made of.
        private: sizes, without batch, of memory that only generated kernels see.
    """

    signature: Signature
    buffers: dict[str, Buffer]
    device: torch.device
    batch: int | None
    batched: frozenset[str]
    fingerprints: tuple[tuple[Any, ...], ...]
    templates: Mapping[str, Any]
    fixed: Mapping[str, Any]
    private: Mapping[str, tuple[int, ...]]

    @lazy
    def floats(self) -> frozenset[str]:
        """Arrays that can have a gradient: those of floats, but for what is detached."""
        floats = frozenset(name for name, buffer in self.buffers.items() if buffer.dtype.is_floating_point)
        return floats - self.signature.detached

    def core(self, name: str) -> tuple[int, ...]:
        """An array's shape without the batch dimension."""
        shape = self.buffers[name].shape
        return shape[1:] if name in self.batched else shape


class Use(NamedTuple):
    """An array argument of a launch. Places are those in the list of pointers; -1 is no gradient."""

    parameter: str
    array: str
    place: int
    gradient: int
    is_batched: bool


@dataclass(frozen=True)
class Step:
    """One launch.

    `entries` are (slot, place of the memory, bytes, shape, place of the gradient or -1).
    `repeats` is not 1 where a kernel that cannot be batched is launched once a sample;
    `strides` then lead from one sample's memory to the next one's. Where the kernel loads machine
    vectors, `aligned` are (place of the memory, what its address must be a multiple of), and memory
    that lies otherwise is given to `unaligned`, the same launch without machine vectors.
    """

    launch: Launch
    entries: tuple[ArrayArgument, ...]
    strides: tuple[int, ...]
    scalars: tuple[tuple[str, Any, str], ...]
    repeats: int
    aligned: tuple[tuple[int, int], ...] = ()
    unaligned: Callable[[], Step] | None = None

    def run(self, pointers: Sequence[int], scalars: Mapping[str, Any]) -> None:
        """Launch. The last of `pointers` is 0, and stands for "no gradient"."""
        if self.unaligned and any(pointers[place] % size for place, size in self.aligned):
            self.unaligned().run(pointers, scalars)
            return
        values = [(setter, slot, scalars[name]) for setter, slot, name in self.scalars] if self.scalars else ()
        if self.repeats == 1:
            self.launch(self.entries, pointers, values)
            return
        for sample in range(self.repeats):
            self.launch(self.entries, self._sample(pointers, sample), values)

    def _sample(self, pointers: Sequence[int], sample: int) -> list[int]:
        """The pointers of one sample of a batch."""
        moved = list(pointers)
        for (_, place, _, _, gradient), stride in zip(self.entries, self.strides, strict=True):
            for one in {place, gradient} - {-1}:
                moved[one] = pointers[one] + sample * stride
        return moved


def step(
    situation: Situation, stage: Stage, uses: Sequence[Use], *, adjoint: bool, is_serial: bool, stack: int = 0
) -> Step:
    """Compile a stage for a situation, and lay out its arguments."""
    types = {use.parameter: _type(situation, stage, use) for use in uses}
    variant = Variant(tuple(types.items()), adjoint, is_serial, _fingerprint(situation, stage), stack)
    plain = functools.cache(lambda: _laid_out(situation, stage, uses, types, variant))
    if not stage.is_simd or adjoint or situation.device.type != "cpu":
        return plain()
    found = _laid_out(situation, stage, uses, types, replace(variant, is_simd=True))
    aligned = tuple((use.place, _alignment(types[use.parameter])) for use in uses if types[use.parameter].element)
    return replace(found, aligned=aligned, unaligned=plain)


def _alignment(array: ArrayType) -> int:
    """Bytes that a machine vector's address is a multiple of: its own size."""
    return product(array.element) * array.dtype.itemsize


def _laid_out(
    situation: Situation, stage: Stage, uses: Sequence[Use], types: Mapping[str, ArrayType], variant: Variant
) -> Step:
    is_looped = any(use.is_batched for use in uses) and bool(stage.batch_refusal(variant))
    if is_looped:
        single = tuple((name, array._replace(is_batched=False)) for name, array in types.items())
        variant = replace(variant, arrays=single)
    compiled = stage.compiled(variant, situation.templates, situation.signature.op)
    entries, strides = [], []
    for use in uses:
        array = types[use.parameter]
        core = situation.core(use.array)
        shape = core[: len(core) - len(array.element)]
        nbytes = product(core) * array.dtype.itemsize
        strides.append(nbytes if use.is_batched and is_looped else 0)
        if use.is_batched and not is_looped:
            shape, nbytes = (situation.batch or 0, *shape), nbytes * (situation.batch or 0)
        entries.append((compiled.slots[use.parameter], use.place, nbytes, shape, use.gradient))
    scalars = tuple(
        (parameter.setter, compiled.slots[name], stage.renamed.get(name, name))
        for name, parameter in stage.first.parameters.items()
        if parameter.kind in ("scalar", "matrix") and name not in types
    )
    repeats = (situation.batch or 0) if is_looped else 1
    return Step(compiled.launch, tuple(entries), tuple(strides), scalars, repeats)


def _type(situation: Situation, stage: Stage, use: Use) -> ArrayType:
    core = situation.core(use.array)
    parameter = stage.parameters[use.parameter]
    if parameter.element:  # a backward kernel's: those of the op itself were held against them before
        check_element(situation.signature.op, parameter, "", core)
    element = element_of(stage, use.parameter, core)
    dtype = situation.buffers[use.array].dtype
    return ArrayType(dtype, len(core) - len(element), element, use.gradient >= 0, use.is_batched)


def _fingerprint(situation: Situation, stage: Stage) -> tuple[Any, ...]:
    place = situation.signature.places.get(stage)
    return stage.fingerprint(situation.templates) if place is None else situation.fingerprints[place]


def product(sizes: Sequence[int]) -> int:
    """How many elements a shape has."""
    count = 1
    for size in sizes:
        count *= size
    return count
