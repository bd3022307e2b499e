"""A Tin on tensors: its fields become arrays of an op, and are left alone.

Each kernel's references to registered fields are replaced by parameters. So nothing is copied,
a batch is one launch, and each call's values are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._errors import GradientError, KernelError, refusal
from ..bridge import FieldArray, Links, Op
from ..engines import NAMES
from ._identifiers import OURS, identifier, used_names
from ._placed import Placed, placed
from ._program import Launch, Roles


class OpProgram:
    """The op that a layer's kernels make.

    Raises:
        KernelError: a kernel uses a field in a way that no array allows.
        GradientError: a gradient would have to go to a field that is no weight.
    """

    def __init__(self, layer: str, roles: Roles, launches: Sequence[Launch]) -> None:
        self._layer = layer
        self._roles = roles
        told = {one.facts.key: one for one in (*roles.filled, *roles.outputs, *roles.internal)}
        self._told = self._written_besides(launches) | told
        taken = set(OURS).union(*(used_names(launch.launcher.stage.source.function) for launch in launches))
        self._names = {one.facts.key: identifier(one.name, taken) for one in self._told.values()}
        self._batch = identifier("batch", taken)
        uses = [self._uses(launch) for launch in launches]
        used = {key for found in uses for key, _ in found.values()}
        written = {key for found in uses for key, is_written in found.values() if is_written}
        shown = {one.facts.key for one in (*roles.filled, *roles.outputs)}
        self._between = tuple(one for key, one in self._told.items() if key in written - shown)
        self._check(used)
        arrays = {one.facts.key for one in (*roles.filled, *roles.outputs, *self._between)}
        links = [
            self._links(launch, {label: key for label, (key, _) in found.items() if key in arrays}, taken)
            for launch, found in zip(launches, uses, strict=True)
        ]
        self._arguments = [link.names for link in links]
        kernels = [launch.launcher.stage.kernel for launch in launches]
        self.op = Op(
            kernels,
            self._spec(),
            scratch=self._items(self._between),
            name=layer,
            links=links,
            detached=self._detached(),
        )
        self._check_followed(arrays)

    def __call__(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The results of one call."""
        values: dict[str, Any] = {}
        for one, tensor in zip(self._roles.filled, memory, strict=True):
            values[self._names[one.facts.key]] = tensor if one.needs_grad else tensor.detach()
        for launch, names in zip(launches, self._arguments, strict=True):
            given = {**launch.bound.scalars, **launch.bound.templates}
            values |= {
                names[name]: value for name, value in given.items() if name in names and names[name] not in values
            }
        result = self.op(*[values[name] for name in self.op.arguments])
        return (result,) if isinstance(result, torch.Tensor) else tuple(result)

    # Looking into the kernels -----------------------------------------------------------------
    def _uses(self, launch: Launch) -> dict[str, tuple[int, bool]]:
        """Registered fields that a kernel uses, by what it calls them: which, and whether it writes them."""
        found = {}
        for use in launch.launcher.fields(launch.bound):
            for name, leaf in launch.launcher.engine.leaf_fields(use.field, use.name):
                key = placed(leaf, name, None, False, self._layer).facts.key
                if key in self._told:
                    found[name] = (key, use.is_written)
        return found

    def _written_besides(self, launches: Sequence[Launch]) -> dict[int, Placed]:
        """Fields between kernels that nobody registered."""
        found = {}
        for launch in launches:
            engine = launch.launcher.engine
            uses = [use for use in launch.launcher.fields(launch.bound) if use.is_written]
            for name, leaf in (leaf for use in uses for leaf in engine.leaf_fields(use.field, use.name)):
                one = placed(leaf, name, None, False, self._layer)
                found[one.facts.key] = one
        return found

    def _check(self, used: set[int]) -> None:
        for one in self._told.values():
            facts = one.facts
            if not facts.is_dense or any(facts.offset) or (facts.is_matrix and len(facts.element) == 1):
                words = f"field `{one.name}` of {self._layer} is laid out in a way that a tensor has not"
                rows = [("dense", str(facts.is_dense)), ("offset", str(facts.offset)), ("element", str(facts.element))]
                remedy = "Place it dense and without an offset, or leave out batched=True and on_tensors=True."
                raise KernelError(refusal(words, rows, remedy))
        for one in self._roles.internal:
            if one.needs_grad and one not in self._between and one.facts.key in used:
                words = (
                    f"internal field `{one.name}` of {self._layer} needs a gradient, which cannot go to a field here"
                )
                remedy = "Register it by register_weight_field, or with needs_grad=False."
                raise GradientError(refusal(words, remedy=remedy))

    def _check_followed(self, arrays: set[int]) -> None:
        """Refuse a registered field that is used by a function of a kernel: it would be another memory there."""
        engine = self._roles.filled[0].engine
        leaves = [leaf for label, field in self.op.fields for leaf in engine.leaf_fields(field, label)]
        for name, leaf in leaves:
            if placed(leaf, name, None, False, self._layer).facts.key in arrays:
                words = (
                    f"a function that {self._layer} calls uses the field `{name}` itself, so no array can replace it"
                )
                remedy = "Give the function the field as an argument, or leave out batched=True and on_tensors=True."
                raise KernelError(refusal(words, remedy=remedy))

    # Making the op ----------------------------------------------------------------------------
    def _links(self, launch: Launch, labels: dict[str, int], taken: set[str]) -> Links:
        own = launch.launcher.stage.parameters
        names, fields = {}, {}
        for label, key in labels.items():
            if label in own:
                names[label] = self._names[key]
            else:
                fields[label] = FieldArray(self._names[key], self._told[key].facts)
        for parameter in own:
            names.setdefault(parameter, identifier(f"{launch.launcher.stage.name}_{parameter}", taken))
        elements = {self._names[key]: self._told[key].facts.element for key in labels.values()}
        return Links(names, elements, fields)

    def _spec(self) -> str:
        return f"{self._items(self._roles.filled)} -> {self._items(self._roles.outputs)}"

    def _items(self, fields: Sequence[Placed]) -> str:
        return ", ".join(self._item(one) for one in fields)

    def _item(self, one: Placed) -> str:
        """A field in the language of specs. What a batched call makes is batched."""
        is_batched = one.is_batched or (one not in self._roles.filled and any(i.is_batched for i in self._roles.filled))
        dims = [f"*{self._batch}"] * is_batched + [str(size) for size in one.memory_shape]
        return f"{self._names[one.facts.key]}[{', '.join(dims)}]: {NAMES[one.facts.dtype]}"

    def _detached(self) -> tuple[str, ...]:
        made = (*self._roles.outputs, *self._between)
        floats = [one for one in made if one.facts.dtype.is_floating_point]
        return tuple(self._names[one.facts.key] for one in floats if not one.needs_grad)
