"""A Tube on tensors: its kernels become one op, and run on the caller's memory.

What an op does not know of is done around it with torch's own differentiable operations: dtypes are
converted, complex numbers become pairs, inputs without a gradient are detached.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..._cache import Cache
from ...compiling import Links
from ...engines import NAMES
from ...operation import Detail, Op, OpOptions
from ...operation.examination import Examination, examine_layer
from ...tracing import constant_when_traced
from ._blueprint import Blueprint
from ._checks import check_tensors
from ._dims import Anything, Batch, MatchDim
from ._names import Names, names_of
from ._parts import TensorPart, check_extra
from ._shapes import Sizes, sizes_of


class Change(NamedTuple):
    """What becomes of an input before the op sees it."""

    place: int
    is_detached: bool
    dtype: torch.dtype | None
    is_complex: bool

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert an input to the form that the op takes."""
        value = tensor.detach() if self.is_detached else tensor
        value = value if self.dtype is None else value.to(self.dtype)
        return torch.view_as_real(value.resolve_conj()) if self.is_complex else value


class Recipe(NamedTuple):
    """How calls with certain tensors are run.

    `changes` come before the op; `order` says which of all tensors and extra arguments the op takes, and in
    which order; `sizes` are those that it is given by keyword. `is_plain` says that the op takes the
    tensors as they come, and that its results are those of the call: most Tubes.
    """

    op: Op
    order: tuple[int, ...]
    changes: tuple[Change, ...]
    sizes: Mapping[str, int]
    is_plain: bool


class TubeOnTensors:
    """A Tube that needs no fields."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._names = names_of(blueprint)
        self._complex = tuple(part.is_complex for part in blueprint.outputs)
        self._has_gradient = any(part.requires_grad for part in blueprint.outputs)
        self._ops: dict[tuple[int, ...], Op] = {}
        self._take(blueprint)
        if not blueprint.calculated_parts:
            self._op(())  # raises errors here, at the registration, and not at a call

    def _take(self, blueprint: Blueprint) -> None:
        blueprint.settle()
        self._blueprint = blueprint
        self._extra = tuple(value for part in blueprint.kernels for value in part.extra)
        self._recipes: Cache[Any, Recipe] = Cache("calls of Tubes")

    def with_blueprint(self, blueprint: Blueprint) -> TubeOnTensors:
        """Return this program with other extra arguments; compiled kernels are shared."""
        twin = copy.copy(self)
        twin._take(blueprint)
        return twin

    # Calling ------------------------------------------------------------------------------
    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Run the op. Return its outputs."""
        recipe = self._recipe(tensors) if torch.compiler.is_compiling() else self._find_recipe(tensors)
        if recipe.is_plain:
            return recipe.op(*tensors)
        result = recipe.op(*self._list_arguments(recipe, tensors), **recipe.sizes)
        return self._view_as_complex(result) if True in self._complex else result

    def _list_arguments(self, recipe: Recipe, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return the op's arguments in order, converted."""
        given = [*tensors, *self._extra]
        for change in recipe.changes:
            given[change.place] = change.of(given[change.place])
        return [given[place] for place in recipe.order]

    def examine(self, tensors: Sequence[torch.Tensor]) -> Examination:
        """Examine a call of the op, for checks."""
        recipe = self._recipe(tensors)
        return examine_layer(recipe.op, self._list_arguments(recipe, tensors), recipe.sizes)

    def _view_as_complex(self, result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            return torch.view_as_complex(result)
        pairs = zip(result, self._complex, strict=True)
        return type(result)(*[torch.view_as_complex(one) if is_complex else one for one, is_complex in pairs])

    def _find_recipe(self, tensors: Sequence[torch.Tensor]) -> Recipe:
        """Return the recipe of an eager call, remembered by shapes and dtypes unless dims are calculated."""
        try:
            key = tuple([(t.shape, t.dtype, t.device, t.requires_grad) for t in tensors])
            recipe = self._recipes.get(key)
        except (AttributeError, RuntimeError, TypeError):  # no tensor, a nested one, or one with symbolic sizes
            return self._recipe(tensors)
        if recipe is not None:
            return recipe
        recipe = self._recipe(tensors)
        return recipe if self._blueprint.calculated_parts else self._recipes.keep(key, recipe)

    def _recipe(self, tensors: Sequence[torch.Tensor]) -> Recipe:
        """Check a call, and say how it is run. Every refusal that does not come from the op comes from here."""
        blueprint = self._blueprint
        for kernel in blueprint.kernels:
            check_extra(kernel)
        check_tensors(blueprint, tensors)
        sizes = sizes_of(blueprint, [tensor.shape for tensor in tensors])
        op = self._op(tuple([len(sizes.allocated_shapes[part.name]) for part in blueprint.calculated_parts]))
        known = self._collect_known_sizes(sizes)
        free_sizes = {name: known[name] for name in op.spec.free_dims}
        order, changes = self._order(op), self._changes(tensors)
        is_plain = not (changes or free_sizes or True in self._complex) and order == tuple(range(len(tensors)))
        return Recipe(op, order, changes, free_sizes, is_plain)

    def _changes(self, tensors: Sequence[torch.Tensor]) -> tuple[Change, ...]:
        changes = []
        for place, (part, tensor) in enumerate(zip(self._blueprint.inputs, tensors, strict=True)):
            is_detached = part.requires_grad is False or not self._has_gradient
            dtype = None if tensor.dtype == part.dtype else part.dtype
            if is_detached or dtype is not None or part.is_complex:
                changes.append(Change(place, is_detached, dtype, part.is_complex))
        return tuple(changes)

    def _order(self, op: Op) -> tuple[int, ...]:
        """Return the positions of the op's arguments among all inputs and extra arguments."""
        inputs, kernels = self._blueprint.inputs, self._blueprint.kernels
        places = {self._names.tensors[part.name]: place for place, part in enumerate(inputs)}
        for kernel, names in zip(kernels, self._names.kernels, strict=True):
            for parameter in kernel.others:
                places[names[parameter.name]] = len(places)
        return tuple([places[name] for name in op.arguments])

    def _collect_known_sizes(self, sizes: Sizes) -> dict[str, int]:
        """Return the sizes that an op takes by keyword: MatchDims, and dims of calculated shapes."""
        sizes_by_name = {self._names.matches[dim_id]: size for dim_id, size in sizes.matches.items()}
        for part in self._blueprint.calculated_parts:
            for axis, size in enumerate(sizes.allocated_shapes[part.name]):
                sizes_by_name[self._names.size(part.name, axis)] = size
        return sizes_by_name

    # Making the op ------------------------------------------------------------------------
    def _op(self, ranks: tuple[int, ...]) -> Op:
        """Return the op for calculated shapes of these ranks; `ranks` is `()` if none is calculated."""
        self._make(ranks)
        return self._ops[ranks]

    @constant_when_traced
    def _make(self, ranks: tuple[int, ...]) -> None:
        """Make the op for these ranks if it does not exist. A compiler that traces a call does not trace this."""
        if ranks not in self._ops:
            self._ops[ranks] = self._new_op(ranks)

    def _new_op(self, ranks: tuple[int, ...]) -> Op:
        blueprint, names = self._blueprint, self._names
        dims = self._dims(ranks)
        sides = [
            ", ".join(self._item(part, dims[part.name]) for part in side if part.name in blueprint.used_tensors)
            for side in (blueprint.inputs, blueprint.outputs, blueprint.intermediates)
        ]
        elements = {names.tensors[p.name]: (2,) if p.is_complex else () for p in blueprint.tensors.values()}
        return Op(
            [part.kernel for part in blueprint.kernels],
            f"{sides[0]} -> {sides[1]}",
            OpOptions(
                scratch=sides[2],
                name=blueprint.label,
                order="kernel",  # `_order` gives arguments by `Op.arguments`
                links=[Links(linked, elements) for linked in names.kernels],
                adjoint=blueprint.adjoint,
                races=blueprint.races,
                detached=tuple(names.tensors[part.name] for part in blueprint.allocations if not part.requires_grad),
            ),
        )

    def _dims(self, ranks: tuple[int, ...]) -> dict[str, list[str]]:
        """Return the dims of every tensor as they are written in a spec."""
        names, is_batched = self._names, self._blueprint.is_batched
        dims = {
            part.name: [_dim_text(dim, names) for dim in part.dims or ()] for part in self._blueprint.tensors.values()
        }
        for part, rank in zip(self._blueprint.calculated_parts, ranks, strict=True):
            sizes = [names.size(part.name, axis) for axis in range(rank)]
            dims[part.name] = [f"*{names.batch}", *sizes[1:]] if is_batched else sizes
        return dims

    def _item(self, part: TensorPart, dims: list[str]) -> str:
        """Return the spec of a tensor; a complex one is an array of 2-vectors."""
        shown = [*dims, "2"] if part.is_complex else dims
        return f"{self._names.tensors[part.name]}[{', '.join(shown)}]: {NAMES[part.memory]}"

    def explain(self, detail: Detail = "summary") -> str:
        """Describe the op, or each op for calculated shapes."""
        return "\n\n".join(op.explain(detail) for op in self._ops.values()) or "its op is made at the first call"


def _dim_text(dim: Any, names: Names) -> str:
    if isinstance(dim, Batch):
        return f"*{names.batch}"
    if isinstance(dim, MatchDim):
        return names.matches[dim.dim_id]
    return "_" if isinstance(dim, Anything) else str(dim)
