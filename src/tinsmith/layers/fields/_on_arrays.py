"""On arrays: kernels that work on fields, run as an op on arrays, whose gradient is generated from their source.

Fields are arrays by another name. What a call needs of them, it is given: inputs and weights by the caller, and a copy
of what the others hold when it begins. So the gradient is that of the values which the forward pass had, whatever
happens to the fields afterwards. What the kernels leave in the arrays is written into the fields when they have run:
the next call, other layers and their owner find there what the kernels would have left.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from ..._config import config
from ..._errors import GraphError, KernelError, refusal
from ..._preparation import note_step, show_preparation
from ...calls import make_recycled, make_recycled_copy
from ...calls.fields import Copy, Transfer, name_fields
from ...engines import FieldKey, gradient_field
from ...ir import NotCovered
from ...operation import Detail
from ...tracing import (
    has_legacy_batch,
    has_saved_tensor_hooks,
    is_in_backward,
    is_linearized,
    is_plain,
    is_recorded,
    keep_order,
)
from .._pool import FIELDS_LOCK
from ._as_op import OpProgram
from ._call import plain
from ._call_notes import NotedFields, fingerprints_of
from ._effects import Reading, Tracking, Writing
from ._gradient_stores import GradientStores
from ._layer_field import LayerField
from ._managed_copies import ManagedCall, ManagedCopies
from ._roles import Habits, Launch, Roles, by_key, uses_of_each
from ._starts import Starts, find_held, find_state, warn_of_rerun
from ._transfer import SHARED, share_unchanged


class ArrayProgram:
    """The kernels of a layer as an op, with copies from and to its fields around it.

    Made for the Python values that the kernels bake in: others make another.

    Attributes:
        on_carried: is told, in the first call, the fields that make a second call with the same tensors return
            something else; None if nobody asks.
        clears: whether fields start each call at zero.

    Raises:
        KernelError: a field is sparse, or a kernel is used in a way that no op allows.
        NotCovered: a kernel uses what the front end does not know.
    """

    def __init__(
        self,
        layer: str,
        roles: Roles,
        launches: Sequence[Launch],
        habits: Habits,
        reset: Callable[[], None] | None = None,
    ) -> None:
        self.layer = layer
        managed_roles = roles
        roles = roles.without_managers
        self._roles = roles
        self._clears_gradients = habits.clears_gradients
        self.engine = roles.filled[0].engine
        used_fields = [use.one for uses in uses_of_each(launches) for use in uses.values()]
        for one in (*roles.filled, *roles.outputs, *roles.internal, *used_fields):
            _check_dense(one, layer)
        if any(one.manager is not None for one in (*managed_roles.filled, *managed_roles.outputs)):
            _check_unregistered(roles, used_fields, layer)
        self._stores = GradientStores(roles, launches)
        self._stores.check(layer)
        self._launchers = self._make_array_launchers(launches)
        self._last_taken: tuple[Sequence[Launch], tuple[Launch, ...]] = ((), ())
        named = self._take(launches)
        uses = uses_of_each(named)
        registered = by_key((*roles.filled, *roles.outputs, *roles.internal))
        self._used = by_key([use.one for of_launch in uses for use in of_launch.values()]) | registered
        written = {use.one.facts.key for of_launch in uses for use in of_launch.values() if use.is_written}
        cleared = by_key(Starts(roles, launches, habits).fields_at_zero)
        self.clears = bool(cleared)
        self.held = find_held(roles, named, cleared)
        self._state = find_state(self.held, named)
        self.on_carried: Callable[[Sequence[LayerField]], None] | None = None
        filled = (*roles.filled, *self.held)
        keys = {use.one.facts.key for of_launch in uses for use in of_launch.values()}
        self._given = tuple(place for place, one in enumerate(filled) if one.facts.key in keys)
        if not self._given:
            if not launches:
                raise NoArray(refusal(f"{layer} launches no kernel", remedy="Call kernels in its function."))
            words = f"the kernels of {layer} do not read the input fields"
            raise NoArray(refusal(words, remedy="Register only fields that a kernel reads as inputs."))
        self._results = tuple(one for one in roles.outputs if one.facts.key in written)
        shown = by_key(self._results)
        changed = tuple(one for key, one in self._used.items() if key in written and key not in shown)
        made = Roles(tuple(filled[place] for place in self._given), (*self._results, *changed), ())
        started = [one for key, one in cleared.items() if key not in by_key(filled)]
        # What the kernels change besides is written into the fields, where torch does not see it: a backward pass from
        # all of that would be generated, and never run.
        make = functools.partial(OpProgram, adjoint="source", begins_at_zero=True, auxiliary=changed)
        self.op = make(layer, made, named, cleared=started, changeable=self.held)
        # What is filled, and left alone by the kernels, holds what it was filled with.
        managed = by_key([one for one in managed_roles.filled if one.manager is not None])
        left = (place for place, one in enumerate(roles.filled) if one.facts.key not in written)
        self._left = tuple(place for place in left if roles.filled[place].facts.key not in managed)
        self._moved = managed.keys()  # their managers' copies leave these gradients in the fields' own
        self._written_back = (*(roles.filled[place] for place in self._left), *made.outputs)
        kept_clear = [one for key, one in cleared.items() if key not in written]
        self._clear = self._transfer("clear", kept_clear) if kept_clear else None
        self._reads: dict[tuple[int, ...], Transfer] = {}
        self._write = self._transfer("load", self._written_back)
        internal = by_key(roles.internal)
        self._internal = tuple(
            place
            for place, one in enumerate(filled)
            if place >= len(roles.filled) and one.facts.key in internal and one.has_gradient
        )
        self._fields = filled
        self._puts: dict[tuple[int, ...], tuple[Transfer, Transfer]] = {}
        elements = sum(one.facts.count for one in self._used.values())
        self._is_serial = filled[0].runs_on == "cpu" and config().is_serial(elements)
        self._managed = ManagedCopies(layer, managed_roles, reset, is_serial=self._is_serial)
        self._written = written
        self._last_held: dict[int, torch.Tensor] = {}
        self._refusals: dict[frozenset[FieldKey], NotCovered | None] = {}

    # Making -----------------------------------------------------------------------------------
    def _make_array_launchers(self, launches: Sequence[Launch]) -> list[Any]:
        """Make a launcher on arrays for each launch that takes part. Launches of one kernel share it."""
        known: dict[object, Any] = {}
        launchers = []
        taking = self._stores.select_taking_part(launches)
        for launch, gradients in zip(taking, self._stores.texts, strict=True):
            kind = launch.kind
            if launch.bound.tensors or kind not in known:
                note_step(launch.launcher.signature.op)
                known[kind] = name_fields(launch.launcher, launch.bound, gradients)
            launchers.append(known[kind])
        return launchers

    def _take(self, launches: Sequence[Launch]) -> tuple[Launch, ...]:
        """Return the launches on arrays; template arguments are part of their kernels."""
        if launches is not self._last_taken[0]:
            pairs = zip(self._launchers, self._stores.select_taking_part(launches), strict=True)
            taken = tuple([Launch(launcher, launch.bound._replace(templates={})) for launcher, launch in pairs])
            self._last_taken = launches, taken
        return self._last_taken[1]

    def _transfer(self, kind: Any, fields: Sequence[LayerField]) -> Transfer:
        return Transfer(self.engine, [Copy(kind, one.field, one.facts) for one in fields])

    # Running ----------------------------------------------------------------------------------
    def __call__(
        self,
        launches: Sequence[Launch],
        memory: Sequence[torch.Tensor],
        begun: Mapping[FieldKey, torch.Tensor] = MappingProxyType({}),
    ) -> Sequence[torch.Tensor]:
        """Return the results of one call.

        Args:
            launches: the kernels with their arguments.
            memory: what the filled fields are filled with.
            begun: contents that the call begins with, by key, of fields that hold something else by now.
        """
        if self._state and is_in_backward():
            warn_of_rerun(self.layer, self._state)
        device = torch.device(self._roles.filled[0].runs_on)
        managed = ManagedCall(self._managed) if self._managed.is_any else None
        memory = memory if managed is None else managed.fill(memory)
        with keep_order(self.engine, device, self.layer):
            if self._clear is not None:
                self._clear.run((), is_serial=self._is_serial)
        if self.held and is_recorded() and not is_linearized():
            raise _refuse_recording(self.layer, self.held)
        held = self.read_held(begun) if is_plain() else list(Reading.apply(self.read_held))
        given = self._connect(memory, held)
        report = self.on_carried if is_plain() else None
        # Kernels change in place what was read for this call alone.
        before = given if report is None else [one.detach().clone() for one in given]
        results = self.op(self._take(launches), [given[place] for place in self._given])
        if report is not None:
            self.on_carried = None
            if fields := self._find_carried(launches, before, results):
                report(fields)
        if self.held and has_saved_tensor_hooks():
            self._check_reruns(launches, held, results)
        left = [memory[place] for place in self._left]
        self._write_back([*left, *results])
        # They store to gradients of the fields, and to nothing else.
        if left_out := self._stores.select_left_out(launches):
            with keep_order(self.engine, device, self.layer):
                for launch in left_out:
                    launch.launcher.launch(launch.bound, launch.launcher.fingerprint(launch.bound), adjoint=False)
        outputs = self._list_results(given, results)
        return outputs if managed is None else managed.show(outputs)

    def _find_carried(
        self, launches: Sequence[Launch], given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
    ) -> list[LayerField]:
        """Return the fields in which a call leaves what makes a second, equal one return something else.

        They are found by running the call again on what it left in the fields that it reads and changes: in all of
        them, and then in each by itself. Where numbers are drawn at random, that tells nothing.
        """
        count, places = len(self._results), [place for place, one in enumerate(self._fields) if self._is_state(one)]
        if not (count and places) or any(launch.launcher.signature.draws for launch in launches):
            return []
        after = dict(zip((one.facts.key for one in self._written_back[len(self._left) :]), results, strict=True))

        def is_same(changed: Sequence[int]) -> bool:
            pairs = zip(self._fields, given, strict=True)
            memory = [after[one.facts.key] if place in changed else t for place, (one, t) in enumerate(pairs)]
            with torch.no_grad():
                again = self.op(self._take(launches), [memory[place].detach().clone() for place in self._given])
            return all(_are_close(one, other) for one, other in zip(again[:count], results[:count], strict=True))

        if is_same(places):
            return []
        alone = [place for place in places if not is_same([place])]
        return [self._fields[place] for place in alone or places]

    def _is_state(self, one: LayerField) -> bool:
        """Return True for a field that is not filled by a call, which reads its earlier content and changes it."""
        return any(one is other for other in self.held) and one.name in self._state

    def _check_reruns(
        self, launches: Sequence[Launch], held: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
    ) -> None:
        """Register hooks that raise in the backward pass if fields have changed.

        A checkpoint would have run the call again with what they hold then.
        """
        pairs = [(one, t) for one, t in zip(self.held, held, strict=True) if one.facts.key not in self._written]
        fields, contents = [one for one, _ in pairs], [one.from_memory(t) for one, t in pairs]
        noted = NotedFields(self.layer, launches, fingerprints_of(launches), fields, contents)
        for one in results:
            if one.requires_grad:
                one.register_hook(lambda _: noted.check_fields())

    def read_held(self, begun: Mapping[FieldKey, torch.Tensor] = MappingProxyType({})) -> list[torch.Tensor]:
        """Return what fields hold that nobody fills, or held when the call had `begun`."""
        read = tuple([place for place, one in enumerate(self.held) if one.facts.key not in begun])
        if read not in self._reads:
            self._reads[read] = self._transfer("store", [self.held[place] for place in read])
        pairs = [(one, torch.device(one.runs_on)) for one in self.held]
        held = [
            make_recycled_copy(begun[one.facts.key])
            if one.facts.key in begun
            else make_recycled(one.memory_shape, one.facts.dtype, device)
            for one, device in pairs
        ]
        if read:
            with keep_order(self.engine, held[0].device, self.layer):
                self._reads[read].run([held[place] for place in read], is_serial=self._is_serial)
        return self._share(held)

    def _share(self, held: list[torch.Tensor]) -> list[torch.Tensor]:
        """Replace the copy of each large field that has not changed since the last call by that call's copy."""
        for place, (one, tensor) in enumerate(zip(self.held, held, strict=True)):
            if one.facts.key in self._written or tensor.nbytes < SHARED:
                continue
            held[place] = self._last_held[place] = share_unchanged(tensor, self._last_held.get(place))
        return held

    def _connect(self, memory: Sequence[torch.Tensor], held: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the op's inputs, with hooks that also put their gradients into the fields' own gradients."""
        given = [*memory, *held]
        wanted = [place for place, one in enumerate(memory) if one.requires_grad] if torch.is_grad_enabled() else []
        if self._internal and wanted:  # what they hold has a gradient wherever an input has one
            places = (wanted[0], *self._internal)
            tracked = Tracking.apply(self._put_of_internal, *[given[place] for place in places])
            for place, one in zip(places, tracked, strict=True):
                given[place] = one
        for place in wanted if is_plain() else ():
            if self._fields[place].has_gradient and self._fields[place].facts.key not in self._moved:
                given[place] = given[place].view_as(given[place])
                given[place].register_hook(functools.partial(self._put_one, place))
        return given

    def _put_of_internal(self, gradients: Sequence[torch.Tensor]) -> None:
        self._put_gradients(self._internal, gradients[1:])

    def _put_one(self, place: int, gradient: torch.Tensor | None) -> None:
        if gradient is None:  # of an output that nothing depends on
            return
        put = functools.partial(self._put_gradients, (place,))
        if is_plain() and not has_legacy_batch([gradient]):
            put([gradient.detach()])
        elif not has_legacy_batch([gradient]):  # which knows no rule of ours
            Writing.apply(put, True, gradient.detach())

    def _put_gradients(self, places: tuple[int, ...], gradients: Sequence[torch.Tensor]) -> None:
        """Put gradients into the fields' own; those of internal fields may add up there."""
        # Written to after a restart, the memory that they had would end the process.
        for place in places:
            self._fields[place].check_alive(self.layer)
        if places not in self._puts:
            fields = [self._fields[place] for place in places]
            self._puts[places] = (self._gradient_transfer("store", fields), self._gradient_transfer("load", fields))
        read, write = self._puts[places]
        with FIELDS_LOCK, keep_order(self.engine, torch.device(self._fields[0].runs_on), self.layer):
            ordered = plain(gradients)
            if self._internal and not self._clears_gradients:
                before = [torch.empty_like(one) for one in ordered]
                read.run(before, is_serial=self._is_serial)
                pairs = zip(places, ordered, before, strict=True)
                ordered = [one + other if place in self._internal else one for place, one, other in pairs]
            write.run(ordered, is_serial=self._is_serial)

    def _gradient_transfer(self, kind: Any, fields: Sequence[LayerField]) -> Transfer:
        return Transfer(self.engine, [Copy(kind, gradient_field(one.field), one.gradient_facts) for one in fields])

    def _write_back(self, tensors: Sequence[torch.Tensor]) -> None:
        """Leave in the fields what the kernels left in the arrays."""
        if is_plain():
            self.write([one.detach() for one in tensors])
        else:
            Writing.apply(self.write, False, *[one.detach() for one in tensors])

    def write(self, tensors: Sequence[torch.Tensor]) -> None:
        """Fill the fields that a call changes."""
        with keep_order(self.engine, torch.device(self._roles.filled[0].runs_on), self.layer):
            self._write.run(plain(tensors), is_serial=self._is_serial)

    def _list_results(self, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the layer's results. An output that no kernel writes is the content of its field, or its input."""
        made = dict(zip((one.facts.key for one in self._results), results, strict=False))
        if len(made) == len(self._roles.outputs):
            return results[: len(made)]
        pairs = zip(self._fields, given, strict=True)
        known = {one.facts.key: tensor for one, tensor in pairs}
        return [made[key] if (key := one.facts.key) in made else known[key].clone() for one in self._roles.outputs]

    # Inspection -------------------------------------------------------------------------------
    @property
    def filled_keys(self) -> Collection[FieldKey]:
        """Keys of the fields that a call fills when its kernels have run."""
        return by_key(self._written_back).keys()

    def refusal(self, launches: Sequence[Launch], active: Sequence[LayerField]) -> NotCovered | None:
        """Return why no gradient with respect to these filled fields can be generated; None if it can."""
        keys = frozenset(one.facts.key for one in active)
        if keys not in self._refusals:
            with show_preparation(f"gradient of {self.layer}"):
                self._refusals[keys] = self._find_refusal(launches, active)
        return self._refusals[keys]

    def _find_refusal(self, launches: Sequence[Launch], active: Sequence[LayerField]) -> NotCovered | None:
        fields = self.op.filled_fields
        memory = [torch.zeros(one.memory_shape, dtype=one.facts.dtype, device=one.runs_on) for one in fields]
        wanted = (*active, *(self._fields[place] for place in self._internal))
        taken = by_key(fields)
        wanted = tuple(one for one in wanted if one.facts.key in taken)
        return self.op.refusal(self._take(launches), memory, wanted)

    def check_indices(self, launches: Sequence[Launch]) -> None:
        """Raise KernelError where launches like those that it was made for use an index that is surely outside."""
        if words := self.op.outside(self._take(launches)):
            raise KernelError(words)

    def explain(self, detail: Detail = "summary") -> str:
        """Describe a call."""
        rows = [
            ("read before each call", self.held),
            ("written after each call", self._written_back),
        ]
        lines = [f"{label}: {', '.join(map(str, fields)) or 'nothing'}" for label, fields in rows]
        return "\n".join([*lines, "", self.op.op.explain(detail)])


def _are_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if two results agree but for the order in which threads add."""
    if not one.dtype.is_floating_point:
        return torch.equal(one, other)
    tolerance = torch.finfo(one.dtype).eps ** 0.75
    scale = float(other.detach().abs().nan_to_num(posinf=0.0).max()) if other.numel() else 0.0
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _refuse_recording(layer: str, held: Sequence[LayerField]) -> GraphError:
    """Build the error for `make_fx`, whose graph would hold a field's content and never read it again."""
    words = f"{layer} reads the field `{held[0].name}`, which a graph of `make_fx` could not read again"
    return GraphError(refusal(words, remedy=f"Make `{held[0].name}` an input of the layer, or use torch.compile."))


class NoArray(KernelError):
    """A field is laid out in a way that no array is."""


def _check_dense(one: LayerField, layer: str) -> None:
    """Raise NoArray for a field that no array can take the place of."""
    if not one.facts.is_dense:
        words = f"field `{one.name}` of {layer} is sparse, but arrays are dense"
        raise NoArray(refusal(words, [("field", str(one))], "Place it with `dense(...)` only."))


def _check_unregistered(roles: Roles, fields: Sequence[LayerField], layer: str) -> None:
    """Raise NoArray for a field besides those of the layer whose gradient its managers may move.

    A manager is given the gradient of its own field; that of another it takes where only the engine's mode leaves it.
    """
    registered = by_key((*roles.filled, *roles.outputs, *roles.internal))
    for one in fields:
        if one.facts.key not in registered and one.has_gradient:
            words = f"field `{one.name}` has a gradient and is not registered in {layer}, whose managers may move it"
            remedy = "Register the field, declare it without a gradient, or leave out the managers."
            raise NoArray(refusal(words, [("field", str(one))], remedy))
