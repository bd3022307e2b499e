"""Sizes of one call of a Tube: do the inputs fit their dims, and how large is what the call makes?

The shapes may be symbolic integers of a compiler that traces the call, so sizes are compared
and handed on, and never turned into plain numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._errors import ShapeError, refusal
from ..._integers import read_integer
from ._blueprint import Blueprint
from ._dims import Batch, DimensionCalculator, DimID, MatchDim
from ._parts import TensorPart, explain_invalid_dim

Shape = tuple[int, ...]


class Sizes(NamedTuple):
    """How large everything is in one call.

    `batch` is None where there is none; `matches` are the sizes of MatchDims by id; `allocated_shapes` are the
    full shapes of outputs and intermediate fields by name, the batch included.
    """

    batch: int | None
    matches: dict[DimID, int]
    allocated_shapes: dict[str, Shape]


def sizes_of(blueprint: Blueprint, shapes: Sequence[Shape]) -> Sizes:
    """Compute the sizes of a call from the shapes of its inputs.

    Raises:
        ShapeError: a shape does not fit its dims, or those of another input; or a calculated dim is none.
    """
    shared: dict[DimID | None, _SharedSize] = {}
    for part, shape in zip(blueprint.inputs, shapes, strict=True):
        _learn(blueprint, part, shape, shared)
    matches = {dim_id: known.size for dim_id, known in shared.items() if dim_id is not None}
    batch = shared[None].size if None in shared else None
    made = {part.name: _compute_made_shape(blueprint, part, shapes, batch, matches) for part in blueprint.allocations}
    return Sizes(batch, matches, made)


class _SharedSize(NamedTuple):
    """A size that inputs share, and the input that it was learned from."""

    size: int
    part: TensorPart
    shape: Shape


def _learn(blueprint: Blueprint, part: TensorPart, shape: Shape, shared: dict[DimID | None, _SharedSize]) -> None:
    """Hold one input's shape against its dims; learn sizes that are shared, by id (None: the batch), and from whom."""
    dims = part.dims or ()
    if len(shape) != len(dims):
        raise ShapeError(_wrong_rank(blueprint, part, shape))
    for place, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if isinstance(dim, int):
            if dim != size:
                raise ShapeError(_wrong_size(blueprint, part, shape, place))
        elif isinstance(dim, (Batch, MatchDim)):  # no `Batch | MatchDim`, which torch 2.6's compiler cannot read
            key = dim.dim_id if isinstance(dim, MatchDim) else None
            before = shared.setdefault(key, _SharedSize(size, part, shape))
            if before.size != size:
                raise ShapeError(_unequal(blueprint, part, shape, dim, before))


def _compute_made_shape(
    blueprint: Blueprint, part: TensorPart, shapes: Sequence[Shape], batch: int | None, matches: dict[DimID, int]
) -> Shape:
    dims = _calculate_dims(blueprint, part, shapes) if part.dims is None else part.dims
    shape: list[Any] = []
    for dim in dims:
        if isinstance(dim, Batch):
            shape.append(batch)
        elif isinstance(dim, MatchDim):
            shape.append(matches[dim.dim_id])
        else:
            shape.append(dim)
    return tuple(shape)


def _calculate_dims(blueprint: Blueprint, part: TensorPart, shapes: Sequence[Shape]) -> tuple[Any, ...]:
    """Call a dimension calculator and check its dims; None stands for BatchDim, as in Stannum."""
    calculator: Any = part.calculator
    function = calculator.calc_dimension if isinstance(calculator, DimensionCalculator) else calculator
    dims = {one.name: one.dims or () for one in blueprint.inputs}
    given = {one.name: shape for one, shape in zip(blueprint.inputs, shapes, strict=True)}
    calculated = function(part.name, dims, given)
    if not isinstance(calculated, (tuple, list)):
        words = f"the dims calculated for {part.kind} `{part.name}` of {blueprint.label} are not a tuple"
        raise ShapeError(
            refusal(words, [("got", repr(calculated))], "Return a tuple of sizes; `()` is a single number.")
        )
    checked = tuple([_dim(dim) for dim in calculated])
    for place, dim in enumerate(checked):
        why = _why_not(blueprint, dim, place)
        if why:
            words = f"the dims calculated for {part.kind} `{part.name}` of {blueprint.label} are invalid"
            rows = [("dims", str(tuple(calculated)), f"dim {place} {why}")]
            raise ShapeError(refusal(words, rows, "Return sizes, BatchDim first, or MatchDims of inputs."))
    # `len`, since torch 2.6's compiler cannot read `bool` of a tuple.
    if (len(checked) > 0 and isinstance(checked[0], Batch)) != blueprint.is_batched:
        raise ShapeError(blueprint.batch_words(part, f"{tuple(calculated)}, calculated"))
    return checked


def _dim(value: Any) -> Any:
    """Convert a calculated dim: None becomes BatchDim, and an integer Python's."""
    if value is None:
        return Batch()
    number = read_integer(value)
    return value if number is None else number


def _why_not(blueprint: Blueprint, dim: Any, place: int) -> str:
    if isinstance(dim, MatchDim):
        known = any(dim in (part.dims or ()) for part in blueprint.inputs)
        return "" if known else "is not a MatchDim of an input"
    if read_integer(dim) is not None:
        return "is negative" if dim < 0 else ""  # an empty result is one
    return explain_invalid_dim(dim, place, is_input=False)


# Words ----------------------------------------------------------------------------------------
def _wrong_rank(blueprint: Blueprint, part: TensorPart, shape: Shape) -> str:
    dims = part.dims or ()
    words = f"tensor `{part.name}` of {blueprint.label} has {len(shape)} dims, and was registered with {len(dims)}"
    remedy = f"Pass a tensor with the dims {dims}."
    if part.is_batched and len(shape) == len(dims) - 1:
        remedy = f"Pass a batch of one: `{part.name}.unsqueeze(0)`."
    elif not blueprint.is_batched and len(shape) == len(dims) + 1:
        remedy = "Register it with BatchDim first, and what is made of it too, to run a batch in one call."
    return refusal(words, [("registered", str(dims)), ("got", str(tuple(shape)))], remedy)


def _wrong_size(blueprint: Blueprint, part: TensorPart, shape: Shape, place: int) -> str:
    dims = part.dims or ()
    words = f"tensor `{part.name}` of {blueprint.label} does not have the size that it was registered with"
    rows: list[tuple[str, ...]] = [
        ("registered", str(dims)),
        ("got", str(tuple(shape)), f"dim {place} was registered as {dims[place]}"),
    ]
    return refusal(words, rows, "Pass that size, or register the dim as AnyDim or MatchDim(id).")


def _unequal(blueprint: Blueprint, part: TensorPart, shape: Shape, dim: Any, before: _SharedSize) -> str:
    words = f"tensor `{part.name}` of {blueprint.label} does not fit `{before.part.name}`"
    rows: list[tuple[str, ...]] = [(before.part.name, f"{before.part.dims} = {tuple(before.shape)}")]
    rows.append((part.name, f"{part.dims} = {tuple(shape)}", f"{dim} was {before.size}"))
    return refusal(words, rows, f"Pass tensors that agree in {dim}.")
