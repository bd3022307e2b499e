"""Steps: compiled kernels, each with the memory that it is launched on."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from .. import compiling
from ..compiling import Alignment, ArrayType, Stage, Variant, ensure_compiled
from ..engines import Launch
from ..ir import NotCovered
from ..spec import Size
from ._cost import Cost
from ._key import CallKey
from ._signature import element_of


class Use(NamedTuple):
    """An array argument of a launch.

    Attributes:
        parameter: the kernel's parameter.
        array: the array that has the same sizes.
        memory: the name of its memory; `gradient` is the name of its gradient's memory, "" if it has none.
        is_batched: whether its memory has a batch dimension.
    """

    parameter: str
    array: str
    memory: str
    gradient: str
    is_batched: bool


class Entry(NamedTuple):
    """An array argument of a compiled kernel.

    Attributes:
        slot: the engine's place for the argument.
        memory: the name of its memory; `gradient` is the name of its gradient's memory, "" if it has none.
        like: the memory whose sizes the engine is given. It differs from `memory` for an argument whose content is not
            read.
        itemsize: the bytes of a number.
        inner: the number of last dims that belong to a vector or matrix, whose sizes the engine is not given.
        is_split: whether the memory has a batch dimension and the kernel takes one sample at a time.
        vector_size: the number of bytes that the address must be a multiple of, since the kernel uses the memory by
            whole machine vectors; 0 if it does not.
    """

    slot: Any
    memory: str
    like: str
    itemsize: int
    inner: int
    gradient: str = ""
    is_split: bool = False
    vector_size: int = 0


class Step(NamedTuple):
    """A compiled kernel and the arguments of its launch, which runs once, or for each sample if an entry is split.

    Attributes:
        scalars: for each (how it is set, slot, the op's name or that of a tape's depth).
        elements: (parameter, memory) whose last sizes must be compared at each call with the kernel's vectors.
    """

    launch: Launch
    entries: tuple[Entry, ...]
    scalars: tuple[tuple[str, Any, str], ...]
    elements: tuple[tuple[Any, str], ...] = ()


class RoutineLaunch(ABC):
    """A launch in a routine, on memory that it knows by name."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The kernel's name; of an engine's reverse kernel "the reverse of" it."""

    @property
    @abstractmethod
    def memory(self) -> tuple[str, ...]:
        """The names of the memory that the kernel is given."""

    @abstractmethod
    def step(self, key: CallKey, alignment: Alignment) -> Step:
        """Compile the kernel. It may use memory by whole machine vectors where runs ensure the alignment for it."""

    @abstractmethod
    def cost(self, key: CallKey) -> Cost | None:
        """Return the facts from which its operations are counted; None if the kernel has no form for one thread."""

    @abstractmethod
    def on_one_thread(self) -> RoutineLaunch:
        """Return the same launch, on one thread."""


@dataclass(frozen=True, eq=False)
class StageLaunch(RoutineLaunch):
    """A launch of a kernel of the op, or of the engine's reverse of it.

    Attributes:
        adjoint: whether it is the engine's reverse of the kernel.
        stack: the depth of the reverse's gradient stack; 0 leaves it to the engine.
    """

    stage: Stage
    uses: tuple[Use, ...]
    adjoint: bool = False
    is_serial: bool = False
    stack: int = 0

    @property
    def name(self) -> str:
        return f"the reverse of {self.stage.name}" if self.adjoint else self.stage.name

    @property
    def memory(self) -> tuple[str, ...]:
        """The names of the memory that the kernel is given: its arrays, each followed by its gradient."""
        names = (name for use in self.uses for name in (use.memory, use.gradient) if name)
        return tuple(dict.fromkeys(names))

    def on_one_thread(self) -> StageLaunch:
        return replace(self, is_serial=True)

    def cost(self, key: CallKey) -> Cost | None:
        """Return the facts from which its operations are counted; None for the engine's reverse."""
        # An engine differentiates the loops that the user wrote, so its reverse has no form for one thread.
        if self.adjoint:
            return None
        stage, values = self.stage.first, key.templates
        variant = self._variant(key, self._types(key))
        is_split = bool(variant.batched_arrays) and bool(self.stage.explain_batch_refusal(variant, values))
        body = None
        # The loops of networks are unrolled; the IR's cost does not cover them.
        if not stage.is_simd:
            with contextlib.suppress(NotCovered):
                body = stage.lower_variant(variant.single if is_split else variant, values).kernel
        shapes = {use.parameter: _find_shape(key, use)[is_split and use.is_batched :] for use in self.uses}
        return Cost(stage, body, shapes, self.stage.scalar_names, stage.engine.thread_count())

    def _types(self, key: CallKey) -> dict[str, ArrayType]:
        return {use.parameter: _find_type(key, self.stage, use) for use in self.uses}

    def _variant(self, key: CallKey, types: Mapping[str, ArrayType]) -> Variant:
        place = key.signature.places.get(self.stage)
        fingerprint = self.stage.baked_values.fingerprint(key.templates) if place is None else key.fingerprints[place]
        return Variant(tuple(types.items()), self.adjoint, self.is_serial, fingerprint, self.stack)

    def step(self, key: CallKey, alignment: Alignment) -> Step:
        stage, uses = self.stage, self.uses
        types = self._types(key)
        variant = self._variant(key, types)
        if key.signature.is_deterministic and not variant.is_serial:
            is_serial = compiling.is_order_fixed_serially(stage, variant, key.templates, key.signature.op)
            variant = replace(variant, is_serial=is_serial)
        is_split = bool(variant.batched_arrays) and bool(stage.explain_batch_refusal(variant, key.templates))
        variant = variant.single if is_split else variant
        # Samples of a split batch begin anywhere.
        if key.device.type != "cpu" or self.adjoint or is_split:
            alignment = Alignment.NONE
        is_simd = stage.is_simd and alignment is Alignment.ALL and not variant.batched_arrays
        variant = replace(variant, is_simd=is_simd, alignment=alignment)
        return _lay_out(key, stage, uses, types, variant, is_split=is_split)


def _find_shape(key: CallKey, use: Use) -> tuple[Size, ...]:
    """Return the sizes of an argument's memory, with a batch dimension if each sample has its own gradient."""
    shape = key.sizing.shapes[use.array]
    batch = key.sizing.batch
    return (batch, *shape) if use.is_batched and use.array not in key.batched_arrays and batch is not None else shape


def _lay_out(
    key: CallKey,
    stage: Stage,
    uses: Sequence[Use],
    types: Mapping[str, ArrayType],
    variant: Variant,
    *,
    is_split: bool,
) -> Step:
    compiled = ensure_compiled(stage, variant, key.templates, key.signature.op)
    entries = []
    for use in uses:
        array = types[use.parameter]
        inner = 0 if compiled.is_flat else len(array.element)
        slot, itemsize = compiled.slots[use.parameter], array.dtype.itemsize
        size = compiled.vector_sizes.get(use.parameter, 0)
        if variant.is_simd and array.element:
            size = itemsize * math.prod(array.element)
        is_sample = is_split and use.is_batched
        entries.append(Entry(slot, use.memory, use.memory, itemsize, inner, use.gradient, is_sample, size))
    scalars = tuple(
        (parameter.setter, compiled.slots[name], stage.scalar_names.get(name, name))
        for name, parameter in stage.first.parameters.items()
        if parameter.kind in ("scalar", "matrix") and name not in types
    )
    # The vectors of the op's own kernels are compared with its inputs when a call is checked.
    is_own = stage in key.signature.places
    vectors = (use for use in uses if stage.parameters[use.parameter].element)
    elements = () if is_own else tuple((stage.parameters[use.parameter], use.array) for use in vectors)
    return Step(compiled.launch, tuple(entries), scalars, elements)


def _find_type(key: CallKey, stage: Stage, use: Use) -> ArrayType:
    shape = key.sample_shape(use.array)
    element = element_of(stage, use.parameter, shape)
    dtype: torch.dtype = key.dtypes[use.array]
    return ArrayType(dtype, len(shape) - len(element), element, bool(use.gradient), use.is_batched)
