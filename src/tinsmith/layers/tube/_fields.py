"""A Tube on fields: where its kernels need what only fields can do.

Fields are made once for each combination of shapes, and kept; a new call of known shapes
compiles nothing. A field holds one sample, so a batch is a loop of calls.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._errors import KernelError, ShapeError, refusal
from ...calls.fields import Launcher
from ...engines import Engine
from ...operation import Detail
from ...operation.examination import Examination
from .._pool import FIELDS_LOCK, FieldTree
from ..fields import Habits, Launch, LayerField, OnFields, Roles, break_graph, build_clear_function, place_field
from ._blueprint import Blueprint
from ._checks import check_tensors
from ._parts import TensorPart, check_extra
from ._shapes import Shape, sizes_of

KEPT = 16
"""Combinations of shapes whose fields are kept. Each is memory, and compiled kernels."""


class FieldSet:
    """The fields for one combination of shapes, and the kernels compiled for them."""

    def __init__(self, blueprint: Blueprint, shapes: dict[str, Shape]) -> None:
        self._blueprint = blueprint
        self._tree = FieldTree(blueprint.kernels[0].engine)
        self.fields = {name: self._construct_field(blueprint.tensors[name], shape) for name, shape in shapes.items()}
        self._tree.finish()
        self.placed = {name: self._place_field(blueprint.tensors[name], shapes[name]) for name in shapes}
        self._launchers = [
            Launcher(part.kernel, f"{blueprint.label}.{part.name}", allows_races=blueprint.races == "allow")
            for part in blueprint.kernels
        ]
        self.roles = self._roles()
        self.running = OnFields(
            blueprint.label,
            self.roles,
            self.bind_kernels(blueprint),
            Habits(True, True),
            blueprint.adjoint,
            self._reset(),
        )
        self._tree.live_as_long_as(self.roles)  # which a backward pass needs, too

    def bind_kernels(self, blueprint: Blueprint) -> tuple[Launch, ...]:
        """Return the kernels with their arguments: fields, then the blueprint's extra arguments."""
        pairs = zip(self._launchers, blueprint.kernels, strict=True)
        return tuple(
            Launch(launcher, launcher.bind_arguments([*[self.fields[name] for name in part.tensors], *part.extra]))
            for launcher, part in pairs
        )

    def _reset(self) -> Callable[[], None] | None:
        """Return a function that clears the fields of managers, which need not fill all elements.

        None if there are none.
        """
        managed = [one for one in self.placed.values() if self._blueprint.tensors[one.name].manager is not None]
        if not managed:
            return None
        clear, deactivate = build_clear_function(managed), self._tree.deactivate

        def reset() -> None:
            deactivate()
            clear()

        return reset

    def _construct_field(self, part: TensorPart, shape: Shape) -> Any:
        """Make a field and place it."""
        wants_gradient = part.memory.is_floating_point and part.requires_grad is not False
        if part.manager is None:
            return self._tree.field(part.memory, shape, (2,) if part.is_complex else (), wants_gradient)
        make = getattr(part.manager, "construct_field", part.manager)
        return make(self._tree.builder, tuple(shape), wants_gradient)

    def _place_field(self, part: TensorPart, shape: Shape) -> LayerField:
        """Describe a field after the tree of fields is finished."""
        label = self._blueprint.label
        asked = part.memory.is_floating_point and part.requires_grad is not False
        if hasattr(part.manager, "to_tensor"):
            one = place_field(self.fields[part.name], part.name, asked, False, label)
            return one.with_manager(part.manager, tuple(shape), part.dtype)
        one = place_field(self.fields[part.name], part.name, asked, part.is_complex, label)
        if one.tensor_shape != tuple(shape) or one.facts.dtype != part.memory:
            words = f"the field that was made for `{part.name}` of {label} does not fit it"
            rows = [("expected", f"{tuple(shape)} {part.memory}"), ("got", f"{one.tensor_shape} {one.facts.dtype}")]
            remedy = "Make a field of that shape and dtype, or pass a FieldManager that converts the tensor."
            raise KernelError(refusal(words, rows, remedy))
        return one

    def _roles(self) -> Roles:
        shelves = (self._blueprint.inputs, self._blueprint.outputs, self._blueprint.intermediates)
        return Roles(*[tuple(self.placed[part.name] for part in shelf) for shelf in shelves])


class TubeOnFields:
    """A Tube that runs on fields."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._sets: OrderedDict[Any, FieldSet] = OrderedDict()

    def with_blueprint(self, blueprint: Blueprint) -> TubeOnFields:
        """Return this program with other extra arguments. Other template arguments need new fields."""
        twin = copy.copy(self)
        twin._blueprint = blueprint
        is_plain = all(one.kind in ("scalar", "matrix") for part in blueprint.kernels for one in part.others)
        twin._sets = self._sets if is_plain else OrderedDict()
        return twin

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Run the Tube. Return its outputs."""
        return break_graph(self._call)(tensors) if torch.compiler.is_compiling() else self._call(tensors)

    def examine(self, tensors: Sequence[torch.Tensor]) -> Examination:
        """Examine a call, for checks; for a batch, its first sample."""
        shapes, given, batch = self._resolve_shapes(tensors)
        if batch == 0:
            words = f"a batch of {self._blueprint.label} has no sample, so there is nothing to check"
            raise ShapeError(refusal(words, remedy="Pass one sample or more."))
        if batch is not None:
            shapes, given = self._single(shapes), self._sample(given, 0)
        field_set = self._set(shapes)
        return field_set.running.examine(field_set.bind_kernels(self._blueprint), self._memory(field_set, given))

    def _call(self, tensors: Sequence[torch.Tensor]) -> Any:
        shapes, given, batch = self._resolve_shapes(tensors)
        if batch is None:
            return self._results(self._one(self._set(shapes), given))
        return self._results(self._batch(shapes, given, batch))

    def _resolve_shapes(
        self, tensors: Sequence[torch.Tensor]
    ) -> tuple[dict[str, Shape], list[torch.Tensor], int | None]:
        """Check the inputs of a call against the registered tensors, and derive the shapes of all tensors.

        Returns:
            Shapes by the tensors' names, with the batch; the inputs, detached if registered with
            `requires_grad=False`; and the batch size, or None without a batch.

        Raises:
            ArgumentError, DeviceError, DtypeError, GradientError, ShapeError: an input or an extra argument does not
                fit.
        """
        blueprint = self._blueprint
        for kernel in blueprint.kernels:
            check_extra(kernel)
        check_tensors(blueprint, tensors)
        sizes = sizes_of(blueprint, [tensor.shape for tensor in tensors])
        shapes = {
            part.name: tuple(t.shape) for part, t in zip(blueprint.inputs, tensors, strict=True)
        } | sizes.allocated_shapes
        given = [
            tensor.detach() if part.requires_grad is False else tensor
            for part, tensor in zip(blueprint.inputs, tensors, strict=True)
        ]
        return shapes, given, sizes.batch

    def _batch(self, shapes: dict[str, Shape], tensors: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
        """Run one call for each sample of a batch. Return the stacked outputs."""
        blueprint = self._blueprint
        if count == 0:
            return [tensors[0].new_empty(shapes[part.name], dtype=part.dtype) for part in blueprint.outputs]
        field_set = self._set(self._single(shapes))
        rows = [self._one(field_set, self._sample(tensors, number)) for number in range(count)]
        return [torch.stack(column) for column in zip(*rows, strict=True)]

    def _single(self, shapes: dict[str, Shape]) -> dict[str, Shape]:
        """Return the shapes of one sample of a batch."""
        blueprint = self._blueprint
        batched = {part.name for part in blueprint.inputs if part.is_batched} | {
            part.name for part in blueprint.allocations
        }
        return {name: shape[1:] if name in batched else shape for name, shape in shapes.items()}

    def _sample(self, tensors: Sequence[torch.Tensor], number: int) -> list[torch.Tensor]:
        """Return the inputs of one sample of a batch."""
        pairs = zip(self._blueprint.inputs, tensors, strict=True)
        return [t[number] if part.is_batched else t for part, t in pairs]

    def _memory(self, field_set: FieldSet, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        pairs = zip(field_set.roles.filled, tensors, strict=True)
        return [one.to_memory(tensor, self._blueprint.label) for one, tensor in pairs]

    def _one(self, field_set: FieldSet, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results = field_set.running(field_set.bind_kernels(self._blueprint), self._memory(field_set, tensors))
        return [one.from_memory(result) for one, result in zip(field_set.roles.outputs, results, strict=True)]

    def _results(self, outputs: Sequence[torch.Tensor]) -> Any:
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _set(self, shapes: dict[str, Shape]) -> FieldSet:
        """Return the fields for these shapes; make them at the first call."""
        engine: Engine = self._blueprint.kernels[0].engine
        key = (tuple(shapes.items()), engine.runtime())
        with FIELDS_LOCK:
            field_set = self._sets.get(key)
            if field_set is None:
                field_set = self._sets[key] = FieldSet(self._blueprint, shapes)
                while len(self._sets) > KEPT:
                    self._sets.popitem(last=False)
            self._sets.move_to_end(key)
            return field_set

    def explain(self, detail: Detail = "summary") -> str:
        """Describe the fields made so far."""
        batch = "one call a sample" if self._blueprint.is_batched else "none"
        lines = [f"batches: {batch}", f"fields kept for {len(self._sets)} combinations of shapes (at most {KEPT}):"]
        lines += ["  " + ", ".join(map(str, field_set.placed.values())) for field_set in self._sets.values()]
        return "\n".join(lines)
