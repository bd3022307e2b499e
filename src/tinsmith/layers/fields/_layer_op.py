"""The op that a layer's kernels make: the names of its arrays, its spec, and the kernels that fill fields first.

Each kernel's references to registered fields are replaced by parameters. Where kernels change a filled field, the op
begins with a kernel that copies the input into an array; a field that a call begins with gets a kernel that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import Any

import torch

from ..._errors import GradientError, KernelError, refusal
from ...calls import element_of
from ...codegen import build_from_text
from ...compiling import FieldArray, Links
from ...engines import NAMES, FieldKey
from ...frontend import read
from ...operation import Adjoint, Op, OpOptions
from .._identifiers import OURS, make_identifier
from ._gradient_stores import GradientStores
from ._layer_field import LayerField, place_field
from ._roles import Launch, Roles, Use, by_key
from ._starts import is_replaced_first, start_kernel


class LayerOp:
    """An op of kernels on fields, and what its arrays and arguments are called.

    Args:
        layer: its name, for messages.
        roles: what its fields are for.
        launches: its kernels with their arguments, but for those that only store to gradients.
        uses_of_launches: what each launch does with fields.
        stores: the gradients that kernels store to by the way.
        unwritten: fields that no kernel writes, though how they are used might be writing.
        runs, adjoint, begins_at_zero: as in `OpProgram`; and so are `cleared`, `changeable` and `auxiliary`, by key.

    Attributes:
        op: the op itself.
        names: what it calls fields, by key.
        before: what it calls inputs whose fields its kernels change, by key.
        registered: all fields that are arrays of it, by key.
        overwritten: filled fields that kernels change.
        between: fields that are neither inputs nor outputs.
        arguments: for each launch, what the op calls its parameters.

    Raises:
        KernelError: a kernel uses a field in a way that no array allows.
        GradientError: a gradient would have to go to a field that is not a weight.
    """

    def __init__(
        self,
        layer: str,
        roles: Roles,
        launches: Sequence[Launch],
        uses_of_launches: Sequence[dict[str, Use]],
        stores: GradientStores,
        *,
        unwritten: frozenset[FieldKey] = frozenset(),
        runs: bool,
        cleared: Collection[FieldKey],
        changeable: Collection[FieldKey],
        adjoint: Adjoint,
        begins_at_zero: bool,
        auxiliary: Collection[FieldKey],
    ) -> None:
        self._layer, self._roles, self._stores, self._begins_at_zero = layer, roles, stores, begins_at_zero
        written = [use.one for uses in uses_of_launches for use in uses.values() if use.is_written]
        written = [one for one in written if one.facts.key not in unwritten]
        registered = by_key((*roles.filled, *roles.outputs, *roles.internal))
        self.registered = by_key(written) | registered  # a field between kernels need not be registered
        changed = by_key(written)
        self.overwritten = tuple(one for one in roles.filled if one.facts.key in changed)
        labels = [
            {n: u.one.facts.key for n, u in uses.items() if u.one.facts.key in self.registered}
            for uses in uses_of_launches
        ]
        sources: dict[Callable[..., Any], set[str]] = {}
        for function in (launch.launcher.stage.source.function for launch in launches):
            sources[function] = sources.get(function) or read(function).all_names()
        taken = set(OURS)
        for launch, one in zip(launches, labels, strict=True):
            taken |= sources[launch.launcher.stage.source.function] - one.keys()
        self.names = {one.facts.key: make_identifier(one.name, taken) for one in self.registered.values()}
        self.before = {one.facts.key: make_identifier(f"{one.name}_before", taken) for one in self.overwritten}
        self._batch = make_identifier("batch", taken)
        shown = by_key((*(one for one in roles.filled if one not in self.overwritten), *roles.outputs))
        used = None if runs else {key for one in labels for key in one.values()}
        self._inputs, self._outputs = (
            tuple(one for one in fields if used is None or one.facts.key in used)
            for fields in (roles.filled, roles.outputs)
        )
        self.between = tuple(self.registered[key] for key in by_key(written) if key not in shown)
        if runs:
            self._check({key for one in labels for key in one.values()})
        arrays = shown | by_key(self.between)
        links = self._link_launches(launches, labels, arrays.keys(), taken)
        self.arguments = [link.names for link in links]
        begun = self._find_initial_fields(launches, uses_of_launches, cleared) if runs else []
        used = [use.one for uses in uses_of_launches for use in uses.values() if use.one.facts.key not in arrays]
        self._refuse_ndarrays([*begun, *used] if runs else [])
        starts = [start_kernel(one, self.names[one.facts.key]) for one in begun]
        copies = [*(self._copy(one, is_taken=one.facts.key in changeable) for one in self.overwritten), *starts]
        moved = [link if link.again is None else link._replace(again=link.again + len(copies)) for link in links]
        handed = self.collect_handed_arrays(launches)
        self.op = Op(
            [*(kernel for kernel, _ in copies), *(launch.launcher.stage.kernel for launch in launches)],
            self._spec(_array_item(name, tensor, element) for name, (tensor, element) in handed.items()),
            OpOptions(
                scratch=self._items(self.between),
                init={self.names[one.facts.key]: "empty" for one in (*self.overwritten, *begun)},
                name=layer,
                order="kernel",  # whoever calls it gives them by `Op.arguments`
                links=[*(link for _, link in copies), *moved],
                adjoint=adjoint,
                races="allow" if any(one.launcher.stage.allows_races for one in launches) else "check",
                detached=self._find_detached_outputs(),
                auxiliary=tuple(self.names[one.facts.key] for one in self._outputs if one.facts.key in auxiliary),
                unrun=not runs,
            ),
        )
        self._check_followed(arrays, len(starts))

    def input_name(self, one: LayerField) -> str:
        """Return the op's name of an input.

        If kernels change its field, that of the array that the input is copied from.
        """
        return self.before.get(one.facts.key) or self.names[one.facts.key]

    def collect_handed_arrays(self, launches: Sequence[Launch]) -> dict[str, tuple[torch.Tensor, tuple[int, ...]]]:
        """Return the array arguments of launches with their element dims, by the op's names for them."""
        arrays = {}
        for launch, names in zip(launches, self.arguments, strict=True):
            stage = launch.launcher.stage
            for name, tensor in zip(launch.launcher.signature.arrays, launch.bound.tensors, strict=True):
                arrays[names[name]] = tensor, element_of(stage, name, tensor.shape)
        return arrays

    def _find_initial_fields(
        self, launches: Sequence[Launch], uses: Sequence[dict[str, Use]], cleared: Container[FieldKey]
    ) -> list[LayerField]:
        """Return the fields whose content a call begins with: not cleared, and not replaced before any read."""
        filled = by_key(self._roles.filled)
        made = [one for key, one in by_key((*self._outputs, *self.between)).items() if key not in filled]
        held = [one for one in made if one.facts.key not in cleared]
        return [one for one in held if not is_replaced_first(one, launches, uses)]

    # Parts of the op ----------------------------------------------------------------------------
    def _link_launches(
        self,
        launches: Sequence[Launch],
        labels: Sequence[dict[str, FieldKey]],
        arrays: Container[FieldKey],
        taken: set[str],
    ) -> list[Links]:
        """Return the op's names for each launch's arrays and arguments.

        Launches of a kernel without templates share its analysis.
        """
        first: dict[object, tuple[int, Links]] = {}
        all_links: list[Links] = []
        for number, (launch, one) in enumerate(zip(launches, labels, strict=True)):
            stage = launch.launcher.stage
            if stage in first and not launch.bound.templates and not launch.bound.tensors:
                place, links = first[stage]
                own = {name: f"{stage.name}_{name}_{number}" for name in launch.bound.scalars}
                own = {name: wish if wish not in taken else make_identifier(wish, taken) for name, wish in own.items()}
                taken |= set(own.values())
                all_links.append(links._replace(names={**links.names, **own}, again=place))
                continue
            links = self._links(launch, {label: key for label, key in one.items() if key in arrays}, taken)
            all_links.append(links._replace(gradients=self._stores.texts[number]))
            first[stage] = number, all_links[-1]
        return all_links

    def _links(self, launch: Launch, labels: dict[str, FieldKey], taken: set[str]) -> Links:
        own = launch.launcher.stage.parameters
        names, fields = {}, {}
        for label, key in labels.items():
            if label in own:
                names[label] = self.names[key]
            else:
                fields[label] = FieldArray(self.names[key], self.registered[key].facts)
        for parameter in own:
            names.setdefault(parameter, make_identifier(f"{launch.launcher.stage.name}_{parameter}", taken))
        elements = {self.names[key]: self.registered[key].facts.element for key in labels.values()}
        return Links(names, elements, fields, launch.bound.templates)

    def _spec(self, arrays: Iterable[str]) -> str:
        given = (self._item(one, self.input_name(one), is_batched=one.is_batched) for one in self._inputs)
        inputs = ", ".join([*given, *arrays])
        return f"{inputs} -> {self._items(self._outputs)}"

    def _items(self, fields: Sequence[LayerField]) -> str:
        """Return the spec of arrays that a call makes.

        In a batched call all of them have the batch dims, copies of weights too.
        """
        is_batched = any(one.is_batched for one in self._roles.filled)
        return ", ".join(self._item(one, self.names[one.facts.key], is_batched=is_batched) for one in fields)

    def _item(self, one: LayerField, name: str, *, is_batched: bool) -> str:
        """Return the spec of a field: its name, dims and dtype."""
        dims = [f"*{self._batch}"] * is_batched + [str(size) for size in one.memory_shape]
        return f"{name}[{', '.join(dims)}]: {NAMES[one.facts.dtype]}"

    def _copy(self, one: LayerField, *, is_taken: bool) -> tuple[Any, Links]:
        """Build the kernel that copies an input to the array that other kernels change."""
        before, name = self.before[one.facts.key], self.names[one.facts.key]
        lang: Any = one.engine.lang
        function = build_from_text(_COPY, {"_lang": lang}, "fill")
        elements = {before: one.facts.element, name: one.facts.element}
        names = {"source": before, "target": name}
        return lang.kernel(function), Links(names, elements, copies=(name, before), is_taken=is_taken)

    def _find_detached_outputs(self) -> tuple[str, ...]:
        made = (*self._roles.outputs, *self.between)
        floats = [one for one in made if one.facts.dtype.is_floating_point]
        return tuple(self.names[one.facts.key] for one in floats if one.is_silent)

    # Checking ---------------------------------------------------------------------------------
    def _check(self, used: set[FieldKey]) -> None:
        for one in self._roles.filled:
            if one.facts.key not in used:
                words = f"no kernel of {self._layer}, which runs on tensors, uses its field `{one.name}`"
                remedy = (
                    "Register the field that the kernels use, or leave this one out; or leave out batched=True and "
                    "on_tensors=True."
                )
                raise KernelError(refusal(words, [("field", str(one))], remedy))
        for one in self.registered.values():
            facts = one.facts
            is_moved = any(facts.offset) and not self._begins_at_zero
            if not facts.is_dense or is_moved or (facts.is_matrix and len(facts.element) == 1):
                words = f"field `{one.name}` of {self._layer} has a layout that no tensor has"
                rows = [("dense", str(facts.is_dense)), ("offset", str(facts.offset)), ("element", str(facts.element))]
                remedy = (
                    "Place it with `dense(...)` and without an offset, or leave out batched=True and on_tensors=True."
                )
                raise KernelError(refusal(words, rows, remedy))
        for one in self._roles.internal:
            if one.needs_grad and one not in self.between and one.facts.key in used:
                words = f"internal field `{one.name}` of {self._layer} needs a gradient, but on tensors it gets none"
                remedy = "Register it by register_weight_field, or with needs_grad=False."
                raise GradientError(refusal(words, remedy=remedy))

    def _refuse_ndarrays(self, fields: Sequence[LayerField]) -> None:
        """Refuse an ndarray whose content a call begins with: an op cannot read it, as it reads a field."""
        for one in fields:
            if one.facts.address:
                words = (
                    f"{self._layer} runs on tensors, and its kernels depend on the earlier content of the ndarray "
                    f"`{one.name}`"
                )
                remedy = (
                    "Register it as an input or a weight, or as cleared (`clear=True`) if a call does not need its "
                    "earlier content; or leave out batched=True and on_tensors=True."
                )
                raise KernelError(refusal(words, [("ndarray", str(one))], remedy))

    def _check_followed(self, arrays: Container[FieldKey], starts: int) -> None:
        """Refuse a field that was reached in a way which is not seen through: it would be another memory there.

        The first `starts` fields are those that our own kernels read, one each; copies of inputs read none.
        """
        engine = self._roles.filled[0].engine
        leaves = [(use, *leaf) for use in self.op.fields[starts:] for leaf in engine.leaf_fields(use.field, use.name)]
        for use, name, leaf in leaves:
            if place_field(leaf, name, None, False, self._layer).facts.key in arrays:
                words = f"`{use.function}` of {self._layer} uses the field `{name}` in a way that no array can replace"
                remedy = "Name the field by itself, `x` or `self.x`, or leave out batched=True and on_tensors=True."
                raise KernelError(refusal(words, [("at", use.place)], remedy))


def _array_item(name: str, tensor: torch.Tensor, element: tuple[int, ...]) -> str:
    """Return the spec of an array argument: its dims may have any size."""
    dims = ["_"] * (tensor.dim() - len(element)) + [str(size) for size in element]
    return f"{name}[{', '.join(dims)}]: {NAMES[tensor.dtype]}"


_COPY = """
def fill(source: _lang.template(), target: _lang.template()):
    for place in _lang.grouped(target):
        target[place] = source[place]
"""
