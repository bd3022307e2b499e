"""Records: for its derivatives, an op keeps the indices that its atomics returned in parallel loops.

Which iteration gets which index depends on timing, so a backward pass that ran the atomics again would use other
indices. Such an op has two more forms. `RecordedCore` does the same as the op and returns the results of its atomics as
additional scratch. `ReplayedCore` takes these as additional inputs, and its results do not depend on an order, so
gradients and tangents of any order are generated from it. A call that is not differentiated runs the op itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..._cache import digest_of
from ...engines import COMPILING, DTYPES
from ...frontend import returns_from_atomics
from ...frontend.lowering import LoweredKernel
from ...ir import Names, NotCovered, Type, nodes
from ...passes.adjoint import Records, records_of
from ...spec import Anything, Batch, Fixed, Item, Sizing
from .._buffers import Buffer
from .._core import Call, Core
from .._key import CallKey
from .._lowering import lower_launches
from .._signature import Signature, compute_lazy_values
from ..backward import AutoReverse, SourceAt, SourceReverse
from ._derived_core import DerivedCore, add_inputs
from ._room import Room, add_room, compute_lengths

ZERO = nodes.Const(0, Type.I32)
Kept = tuple[Records | None, ...]
"""For each kernel of an op, in the order of their launches, the records that it needs, or None."""


class ReplayedCore(DerivedCore):
    """A core whose atomics return the values of its last inputs."""

    hands_out = False

    def __init__(self, base: Core, names: Mapping[int, str], types: Mapping[int, str]) -> None:
        self.names = names
        self.types = types
        super().__init__(base, _add_records(base.signature, names, types, is_given=True))

    def make_call(self, base: Call, records: Sequence[Any]) -> Call:
        """Return the call that corresponds to one of the base and its records."""
        lead = 0 if base.batch is None else 1
        batched = base.batched | (frozenset(self.names.values()) if lead else frozenset())
        return replace(
            base,
            core=self,
            shapes=base.shapes + tuple(tuple(one.shape[lead:]) for one in records),
            dtypes=base.dtypes + tuple(one.dtype for one in records),
            batched=batched,
        )

    def key(self, call: Call) -> CallKey:
        base = self.base.key(self.base_call(call))
        return _with_records(base, self, call.batched & frozenset(self.names.values()))

    def kernels(self, key: CallKey) -> list[LoweredKernel]:
        return _build_kernels(self, key, Records.build_replaying_kernel)


class RecordedCore(DerivedCore):
    """A core that returns the results of its atomics as its last scratch."""

    hands_out = False

    def __init__(self, base: Core, names: Mapping[int, str], types: Mapping[int, str]) -> None:
        self.names = names
        self.types = types
        self.replay = ReplayedCore(base, names, types)
        super().__init__(base, _add_records(base.signature, names, types, is_given=False))

    def make_call(self, base: Call) -> Call:
        """Return the call that corresponds to one of the base."""
        return replace(base, core=self)

    def key(self, call: Call) -> CallKey:
        base = self.base.key(self.base_call(call))
        return _with_records(base, self, frozenset() if call.batch is None else frozenset(self.names.values()))

    def kernels(self, key: CallKey) -> list[LoweredKernel]:
        return _build_kernels(self, key, Records.build_recording_kernel)

    def specialize_replay(self, key: CallKey) -> SourceAt:
        """Return the source of the replayed core's gradient, for calls of the base of one kind."""
        key = _with_records(replace(key, batched=frozenset()), self.replay, frozenset())
        return self.replay.source.specialize(key)

    def get_derivative_call(self, call: Call, made: Sequence[Any]) -> tuple[Call, Sequence[Any]]:
        records = made[len(made) - len(self.names) :]
        return self.replay.make_call(self.base_call(call), records), records

    # Sizes ------------------------------------------------------------------------------------

    def size_values(self, call: Call) -> dict[str, Any]:
        """Return the values that sizes depend on: all scalars of the call, as the lengths of records may use any."""
        return {**self.signature.size_values(call.scalars, call.sizes), **call.scalars}

    def plan_buffers(self, call: Call) -> list[Buffer]:
        base = self.base_call(call)
        made, lead = self.base.plan_buffers(base), () if call.batch is None else (call.batch,)
        shapes = dict(zip(self.signature.arrays, call.shapes, strict=True))
        shapes.update({one.name: tuple(one.shape[len(lead) :]) for one in made})
        sizes = compute_lengths(self._find_room(call), self.signature, shapes, call.scalars)
        kept = zip(self.names.items(), sizes, strict=True)
        return [*made, *(Buffer(name, (*lead, size), DTYPES[self.types[place]]) for (place, name), size in kept)]

    def sizing(self, call: Call) -> Sizing:
        """Return the base's sizing with the records, whose lengths are formulas that depend on the kind of call."""
        return add_room(self.base_call(call).sizing, self._find_room(call), call, is_looped=True)

    def _find_room(self, call: Call) -> Room:
        """Return, for each kernel with records, the formula of their length."""
        kept = _find_records(self.base, self.key(call))[1]
        sizes = {place: ZERO if (one := kept[place]) is None else one.size for place in self.names}
        return {name: (place, sizes[place]) for place, name in self.names.items()}


def _build_kernels(
    core: ReplayedCore | RecordedCore, key: CallKey, build: Callable[[Records, str], nodes.Kernel]
) -> list[LoweredKernel]:
    """Lower the kernels of a core's base. Let `build` change those that need records, given these and their name."""
    kernels, kept = _find_records(core.base, key)
    return [
        LoweredKernel(one.kernel if records is None else build(records, core.names[place]), one.fields)
        for place, (one, records) in enumerate(zip(kernels, kept, strict=True))
    ]


def _with_records(base: CallKey, core: ReplayedCore | RecordedCore, batched: frozenset[str]) -> CallKey:
    """Return a key with records. The samples of a batch run one by one, each with its own counters."""
    names = core.names
    return replace(
        base,
        signature=core.signature,
        shapes={**base.shapes, **dict.fromkeys(names.values(), (1,))},
        dtypes={**base.dtypes, **{name: DTYPES[core.types[place]] for place, name in names.items()}},
        batched=base.batched | batched,
        is_apart=True,
    )


def find_recorded(core: Core, call: Call) -> RecordedCore | None:
    """Return the core that records what the atomics of a call return.

    Return None if nothing has to be recorded, or if the kernels cannot be analyzed.
    """
    if core.hands_out is None:
        stages = core.signature.firsts if isinstance(core.reverse, AutoReverse | SourceReverse) else ()
        core.hands_out = any(returns_from_atomics(stage.source, stage.home) for stage in stages)
    return find_recorded_at(core, core.key(call)) if core.hands_out else None


def find_recorded_at(core: Core, key: CallKey) -> RecordedCore | None:
    """Return the core that records what the atomics return, for calls with this key; None as `find_recorded` does."""
    try:
        kept = _find_records(core, key)[1] if _may_need_records(core, key) else ()
    except NotCovered:
        return None
    types = {place: one.type for place, one in enumerate(kept) if one is not None}
    recorded = _find_core(core, types) if types else None
    if recorded is None or not isinstance(core.reverse, AutoReverse):
        return recorded
    # If there is another obstacle as well, the engine's reverse mode is tried next.
    active = frozenset(name for name in core.signature.arrays if key.dtypes[name].is_floating_point)
    return None if recorded.specialize_replay(key).refusal(active) else recorded


def _find_core(core: Core, types: Mapping[int, str]) -> RecordedCore:
    key = tuple(types.items())
    recorded = core.recorded.get(key)
    if recorded is not None:
        return recorded
    with COMPILING:
        if key not in core.recorded:
            core.settle()
            recorded = RecordedCore(core, _name_records(core.signature, types), types)
            content = digest_of(core.content, *(f"{place} {kind}" for place, kind in key))
            core.operators.define(recorded.replay, lambda: content, "_replayed")
            core.operators.define(recorded, lambda: content, "_recorded")
            core.recorded[key] = recorded
        return core.recorded[key]


def _name_records(signature: Signature, types: Mapping[int, str]) -> dict[int, str]:
    """Choose names for the records that no kernel uses."""
    names = Names({*signature.order, *signature.items, *signature.by_name})
    return {place: names.fresh(f"returned_{place}") for place in types}


def _may_need_records(core: Core, key: CallKey) -> bool:
    """Return True if records may be needed. Launches of one kernel are alike, so each kernel is lowered only once."""
    if len(core.signature.firsts) == len(core.signature.stages):
        return True
    kernels = lower_launches(replace(key, signature=core.signature, batched=frozenset(), launch_numbers={})).kernels
    return any(records_of(kernel) is not None for kernel, _ in kernels)


def _find_records(core: Core, key: CallKey) -> tuple[list[LoweredKernel], Kept]:
    """Lower the kernels of a core for one sample. Return them and the records that each needs.

    Raises:
        NotCovered: a kernel uses what the front end does not know.
    """
    single = replace(key, signature=core.signature, batched=frozenset(), launch_numbers={})
    records = core.cores_with_records.get(single.variants)
    if records is None:
        kernels = core.kernels(single)
        records = kernels, tuple(records_of(kernel) for kernel, _ in kernels)
        core.cores_with_records.keep(single.variants, records)
    return records


def _add_records(base: Signature, names: Mapping[int, str], types: Mapping[int, str], *, is_given: bool) -> Signature:
    """Return the base's signature with the records, as inputs if `is_given`, otherwise as scratch."""
    batch = () if base.spec.batch_name is None else (Batch(base.spec.batch_name),)
    # The core computes the real size.
    dim = Anything() if is_given else Fixed(1)
    items = tuple(Item(name, (*batch, dim), types[place]) for place, name in names.items())
    if is_given:
        return add_inputs(base, items)
    spec = replace(base.spec, scratch=(*base.spec.scratch, *items))
    return compute_lazy_values(replace(base, spec=spec, detached=base.detached | frozenset(names.values())))
