"""Steps: the launches of a plan, put together from compiled kernels and the sizes of a call."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from .._lazy import lazy
from ..engines import ArrayArgument, Launch
from ._elements import check_element, element_of
from ._signature import Signature
from ._stage import Stage
from ._variant import ArrayType, Variant


@dataclass(eq=False)  # not frozen: that would take longer to make than everything in it
class Situation:
    """What a plan is made for.

    Attributes:
        shapes: whole shapes of every array, batch included, by name: inputs, then outputs, then scratch.
        dtypes: of these arrays.
        batch: size of the flat batch dimension, None without one.
        batched: arrays that have it.
        fixed: scalar arguments that a plan depends on: those that dims and loop bounds are made of.
        private: sizes, without batch, of memory that only generated kernels see.
    """

    signature: Signature
    shapes: dict[str, tuple[int, ...]]
    dtypes: Mapping[str, torch.dtype]
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
        floats = frozenset(name for name, dtype in self.dtypes.items() if dtype.is_floating_point)
        return floats - self.signature.detached

    def resize(self, shapes: dict[str, tuple[int, ...]], batch: int | None, fixed: Mapping[str, Any]) -> Situation:
        """The same with other sizes, for an op without private memory."""
        return Situation(
            self.signature,
            shapes,
            self.dtypes,
            self.device,
            batch,
            self.batched,
            self.fingerprints,
            self.templates,
            fixed,
            self.private,
        )

    def core(self, name: str) -> tuple[int, ...]:
        """An array's shape without the batch dimension."""
        shape = self.shapes[name]
        return shape[1:] if name in self.batched else shape


class Use(NamedTuple):
    """An array argument of a launch.

    Attributes:
        parameter: the kernel's.
        array: whose sizes it has.
        memory: the name of its memory; `gradient` that of its gradient's, "" without.
        is_batched: whether its memory has a batch dimension.
    """

    parameter: str
    array: str
    memory: str
    gradient: str
    is_batched: bool


class Sized(NamedTuple):
    """How an array argument follows from sizes.

    Attributes:
        array: the array.
        itemsize: bytes of a number.
        inner: how many last dims are those of a vector or matrix.
    """

    array: str
    itemsize: int
    inner: int

    def bytes_and_shape(self, whole: Sequence[int]) -> tuple[int, Sequence[int]]:
        """What an engine is told of memory of that shape, batch and element dims included."""
        return self.itemsize * math.prod(whole), whole[: len(whole) - self.inner] if self.inner else whole


class Step(NamedTuple):
    """One launch.

    `entries` are (slot, place of the memory, bytes, shape, place of the gradient or -1).
    `repeats` is not 1 where a kernel that cannot be batched is launched once a sample;
    `strides` then lead from one sample's memory to the next one's. Where the kernel loads machine
    vectors, `aligned` are (place of the memory, what its address must be a multiple of), and memory
    that lies otherwise is given to `unaligned`, the same launch without machine vectors. `sized` says how entries
    follow from sizes; it is empty where sizes decide more than that. One that `is_plain` has nothing but arrays, and
    is launched once on whatever memory.
    """

    launch: Launch
    entries: tuple[ArrayArgument, ...]
    strides: tuple[int, ...]
    scalars: tuple[tuple[str, Any, str], ...]
    repeats: int
    aligned: tuple[tuple[int, int], ...] = ()
    unaligned: Callable[[], Step] | None = None
    sized: tuple[Sized, ...] = ()
    is_plain: bool = False

    def resize(self, shapes: Mapping[str, Sequence[int]]) -> Step:
        """The same launch on memory of other sizes: whole shapes by array, batch included."""
        launch, _, strides, scalars, repeats, aligned, unaligned, sized, is_plain = self
        entries = tuple(
            [
                (slot, place, *one.bytes_and_shape(shapes[one.array]), gradient)
                for (slot, place, _, _, gradient), one in zip(self.entries, sized, strict=True)
            ]
        )
        otherwise = None if unaligned is None else lambda: unaligned().resize(shapes)
        return Step(launch, entries, strides, scalars, repeats, aligned, otherwise, sized, is_plain)

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


@dataclass(frozen=True, eq=False)
class StageLaunch:
    """A launch of a kernel of the op's, or of its reverse.

    Attributes:
        adjoint: whether the engine's reverse of the kernel.
        stack: the depth of its gradient stack for a call; None where there is none to set.
    """

    stage: Stage
    uses: tuple[Use, ...]
    adjoint: bool = False
    is_serial: bool = False
    stack: Callable[[Situation], int] | None = None

    @property
    def memory(self) -> tuple[str, ...]:
        """Names of what it works on."""
        return tuple(name for use in self.uses for name in (use.memory, use.gradient) if name)

    def step(self, situation: Situation, places: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Step:
        """Compile the stage for a call, and lay out its arguments."""
        stage, uses = self.stage, self.uses
        types = {use.parameter: _type(situation, stage, use) for use in uses}
        stack = 0 if self.stack is None else self.stack(situation)
        variant = Variant(tuple(types.items()), self.adjoint, self.is_serial, _fingerprint(situation, stage), stack)
        lay_out = functools.partial(_lay_out, situation, stage, uses, types, places)
        if not stage.is_simd or self.adjoint or situation.device.type != "cpu":
            found = lay_out(variant)
            return found if self.stack is None else found._replace(sized=())
        found = lay_out(replace(variant, is_simd=True))
        vectors = [use for use in uses if types[use.parameter].element]
        aligned = tuple((places[use.memory], _alignment(types[use.parameter])) for use in vectors)
        plain = functools.cache(lambda: lay_out(variant))
        return found._replace(aligned=aligned, unaligned=plain, is_plain=False)


def _alignment(array: ArrayType) -> int:
    """Bytes that a machine vector's address is a multiple of: its own size."""
    return product(array.element) * array.dtype.itemsize


def _lay_out(
    situation: Situation,
    stage: Stage,
    uses: Sequence[Use],
    types: Mapping[str, ArrayType],
    places: Mapping[str, int],
    variant: Variant,
) -> Step:
    is_looped = any(use.is_batched for use in uses) and bool(stage.batch_refusal(variant))
    if is_looped:
        single = tuple((name, array._replace(is_batched=False)) for name, array in types.items())
        variant = replace(variant, arrays=single)
    compiled = stage.compiled(variant, situation.templates, situation.signature.op)
    entries, strides, sized = [], [], []
    for use in uses:
        array = types[use.parameter]
        core = situation.core(use.array)
        one = Sized(use.array, array.dtype.itemsize, 0 if compiled.is_flat else len(array.element))
        is_wide = use.is_batched and not is_looped
        nbytes, shape = one.bytes_and_shape((situation.batch or 0, *core) if is_wide else core)
        strides.append(nbytes if use.is_batched and is_looped else 0)
        gradient = places[use.gradient] if use.gradient else -1
        entries.append((compiled.slots[use.parameter], places[use.memory], nbytes, shape, gradient))
        sized.append(one)
    scalars = tuple(
        (parameter.setter, compiled.slots[name], stage.renamed.get(name, name))
        for name, parameter in stage.first.parameters.items()
        if parameter.kind in ("scalar", "matrix") and name not in types
    )
    repeats = (situation.batch or 0) if is_looped else 1
    # A gradient that every sample has of its own is wider than its array, and the element dims of a backward kernel
    # are held against memory where its arguments are laid out.
    is_own = stage in situation.signature.places or not any(array.element for array in types.values())
    follows = is_own and not is_looped and all(use.is_batched == (use.array in situation.batched) for use in uses)
    return Step(
        compiled.launch,
        tuple(entries),
        tuple(strides),
        scalars,
        repeats,
        sized=tuple(sized) if follows else (),
        is_plain=not scalars and not is_looped,
    )


def _type(situation: Situation, stage: Stage, use: Use) -> ArrayType:
    core = situation.core(use.array)
    parameter = stage.parameters[use.parameter]
    if parameter.element:  # a backward kernel's: those of the op itself were held against them before
        check_element(situation.signature.op, parameter, "", core)
    element = element_of(stage, use.parameter, core)
    dtype = situation.dtypes[use.array]
    return ArrayType(dtype, len(core) - len(element), element, bool(use.gradient), use.is_batched)


def _fingerprint(situation: Situation, stage: Stage) -> tuple[Any, ...]:
    place = situation.signature.places.get(stage)
    return stage.fingerprint(situation.templates) if place is None else situation.fingerprints[place]


def product(sizes: Sequence[int]) -> int:
    """How many elements a shape has."""
    return math.prod(sizes)
