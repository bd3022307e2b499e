"""Elements and attributes: `x[i]`, `v[k]`, `v.xy`, `ray.origin`, `x.shape`."""

from __future__ import annotations

import ast
from typing import Any

from ...engines import find_swizzle, parse_expression
from ...ir import Misfit, Operator, Type, nodes
from ._lowering import Lowering
from ._values import ArrayValue, BoundFunction, DynamicEntry, Matrix, Scalar, Struct, is_expression, kind_of, plain

UNKNOWN_SIZE = "an index that is computed at run time"


def array_of(low: Lowering, value: Any, node: ast.expr) -> ArrayValue | None:
    """Return a value as an array if it is an array parameter or a field of numbers, else None."""
    if isinstance(value, ArrayValue):
        return value
    if low.engine.is_field(value) and low.language.struct_of(value) is None:
        return low.fields.array(value, ast.unparse(node))
    return None


def place(low: Lowering, node: ast.Subscript) -> Any:
    """Lower a subscript `value[index]` to the element that it names; return it, to be read or assigned to."""
    value = low.value(node.value)
    index = low.value(node.slice)
    indices = list(index) if isinstance(index, tuple) else [index]
    return element(low, value, indices, node.value)


def element(low: Lowering, value: Any, indices: list[Any], node: ast.expr) -> Any:
    """Return an element of an array, a matrix or a Python container."""
    array = array_of(low, value, node)
    if array is not None:
        return _of_array(low, array, indices)
    if low.engine.is_field(value):
        facts = low.language.struct_of(value)
        if facts is None:
            raise Misfit("a field whose elements are not numbers")
        label = ast.unparse(node)
        parts = {
            key: element(low, member, indices, parse_expression(f"({label}).{key}"))
            for key, member in facts.members.items()
        }
        return Struct(parts, facts.methods)
    # In a `static` loop over vectors, `offset[0]` is a constant: `weights[offset[0]]` picks from a Python list.
    indices = [_unwrap_constant(index) for index in indices]
    if not isinstance(value, Matrix) and any(low.ops.is_run_time(index) for index in indices):
        rows = low.language.rows_of(value)
        if rows is None:
            name = ast.unparse(node)
            remedy = f"Make `{name}` a field, an ndarray, or a tensor among the kernel's arguments or in a dataclass"
            raise Misfit(f"{UNKNOWN_SIZE} into `{name}`, {kind_of(value)}", remedy)
        value = low.ops.matrix(rows)
    if isinstance(value, Matrix):
        return _of_matrix(low, value, indices)
    if is_expression(value):
        raise Misfit("indexing a number, which has no elements")
    try:
        return plain(value[tuple(indices) if len(indices) > 1 else indices[0]])
    except (TypeError, LookupError) as reason:
        raise Misfit(f"an index into {kind_of(value)}: {reason}") from None


def _unwrap_constant(index: Any) -> Any:
    return index.value if isinstance(index, nodes.Const) else index


def _of_array(low: Lowering, value: ArrayValue, indices: list[Any]) -> Any:
    array = value.array
    flat: list[Any] = []
    for index in indices:
        flat += _flatten(index)
    if len(flat) != array.rank:
        raise Misfit(f"{len(flat)} indices into `{array.label or array.name}`, which has {array.rank}")
    numbers = tuple(low.ops.scalar(index) for index in flat)
    if any(number.type[0] == "f" for number in numbers):
        raise Misfit(f"a float as an index of `{array.label or array.name}`")
    # Declared with `boundary="clamp"`.
    if array.is_clamped:
        numbers = tuple(_clamp(low, number, size) for number, size in zip(numbers, value.shape, strict=True))
    if not array.element:
        return nodes.Load(array.name, numbers, (), array.type)
    # Each entry has a load with the whole index in it.
    numbers = tuple(low.state.share(number) for number in numbers)
    entries = Matrix(array.element, ()).indices
    return Matrix(array.element, tuple(nodes.Load(array.name, numbers, entry, array.type) for entry in entries))


def _clamp(low: Lowering, index: Scalar, size: int | Scalar) -> Scalar:
    """Return the nearest index inside the array. The counter of a parallel loop over the array is always inside."""
    loop = low.state.parallel
    inside = (nodes.Const(0, Type.I32), size)
    if loop is not None and any(
        index == nodes.Local(name, Type.I32) and bound == inside
        for name, bound in zip(loop.names, loop.bounds, strict=True)
    ):
        return index
    last = low.ops.binary(Operator.SUB, size, 1)
    return low.ops.scalar(low.ops.binary(Operator.MAX, low.ops.binary(Operator.MIN, index, last), 0))


def _flatten(index: Any) -> list[Any]:
    """List the integers of an index: all those of a vector or tuple, none for None."""
    if index is None:
        return []
    if isinstance(index, Matrix):
        return list(index.entries)
    return [one for part in index for one in _flatten(part)] if isinstance(index, tuple | list) else [index]


def _of_matrix(low: Lowering, value: Matrix, indices: list[Any]) -> Any:
    indices = [one for index in indices for one in _flatten(index)]
    if len(indices) != len(value.shape):
        raise Misfit(f"{len(indices)} indices into a matrix of shape {value.shape}")
    if any(isinstance(index, slice) for index in indices):
        return _slice(low, value, indices)
    if any(is_expression(index) for index in indices):
        # Every test for an entry reads the index (`hits`).
        return DynamicEntry(value, tuple(low.state.share(i) if is_expression(i) else i for i in indices))
    try:
        return value[tuple(indices)]
    except (IndexError, TypeError):
        raise Misfit(f"the index {indices} into a matrix of shape {value.shape}") from None


def _slice(low: Lowering, value: Matrix, indices: list[Any]) -> Matrix:
    """Return the part of a matrix that slices select. Beside a run-time index its entries are read: no places."""
    indices = [low.state.share(index) if is_expression(index) else index for index in indices]
    is_known = not any(is_expression(index) for index in indices)
    ranges = [
        range(*index.indices(size)) if isinstance(index, slice) else [index]
        for index, size in zip(indices, value.shape, strict=True)
    ]
    kept = tuple(len(r) for r, index in zip(ranges, indices, strict=True) if isinstance(index, slice))
    chosen = [(i,) for i in ranges[0]] if len(ranges) == 1 else [(i, j) for i in ranges[0] for j in ranges[1]]
    return Matrix(kept, tuple(value[i] if is_known else read(low, DynamicEntry(value, i)) for i in chosen))


def read(low: Lowering, value: Any) -> Any:
    """Return the value of a place. An entry at a run-time index is selected from all entries."""
    if not isinstance(value, DynamicEntry):
        return value
    entries = value.matrix.indices
    result = value.matrix.entries[-1]
    for index in reversed(entries[:-1]):
        result = nodes.Select(hits(low, value, index), value.matrix[index], result, result.type)
    return result


def hits(low: Lowering, picked: DynamicEntry, index: tuple[int, ...]) -> Scalar:
    """Return the condition that an index computed at run time selects the entry with the index `index`."""
    tests = [low.ops.binary(Operator.EQ, wanted, k) for wanted, k in zip(picked.index, index, strict=True)]
    # An axis whose index is known needs no test at run time.
    tests = [test for test in tests if test is not True]
    if any(test is False for test in tests):
        return nodes.Const(False, Type.U1)
    condition = tests[0]
    for test in tests[1:]:
        condition = nodes.Binary(Operator.AND, condition, test, Type.U1)
    return condition


def attribute(low: Lowering, value: Any, node: ast.Attribute) -> Any:
    """Lower an attribute `value.name`: a struct's member, an array's property or a vector's component."""
    name = node.attr
    if isinstance(value, Struct):
        return _of_struct(value, name)
    if name == "fill" and (isinstance(value, ArrayValue) or low.engine.is_field(value)):
        return BoundFunction(low.language.field_filler, value)
    if isinstance(value, ArrayValue):
        return _of_whole_array(value, name)
    if not low.state.is_static and low.engine.matrix_entries(value) is not None:
        # A captured vector: in a kernel its methods are functions of the language.
        value = low.ops.tensor(value)
    if not isinstance(value, Matrix) and not is_expression(value):
        try:
            return getattr(value, name)
        except AttributeError as reason:
            raise low.make_refusal(f"`{ast.unparse(node)}`: {reason}", node) from None
    if isinstance(value, Matrix):
        swizzled = swizzle(value, name)
        if swizzled is not None:
            return swizzled
        if name in ("n", "m") and len(value.shape) > "nm".index(name):
            return value.shape["nm".index(name)]
    operation = low.language.matrix_operation(name)
    if name == "get_shape" or operation is not None:
        return BoundFunction(name if operation is None else operation, value)
    raise low.make_refusal(f"`{ast.unparse(node)}`", node)


def _of_struct(value: Struct, name: str) -> Any:
    if name in value.members:
        return value.members[name]
    if name in value.methods:
        return BoundFunction(value.methods[name], value)
    if name == "keys":
        return list(value.members)
    raise Misfit(f"`.{name}` of a struct with {', '.join(value.members)}")


def _of_whole_array(value: ArrayValue, name: str) -> Any:
    if name == "shape":
        return value.shape
    if name in ("n", "m") and len(value.array.element) > "nm".index(name):
        return value.array.element["nm".index(name)]
    raise Misfit(f"`.{name}` of the array `{value.array.name}`")


def swizzle(value: Matrix, name: str) -> Any:
    """Return `v.x` or `v.zyx`, or None if the name is not a swizzle."""
    places = find_swizzle(name, value.shape[0]) if len(value.shape) == 1 else None
    if places is None:
        return None
    chosen = tuple(value.entries[place] for place in places)
    return chosen[0] if len(chosen) == 1 else Matrix((len(chosen),), chosen)
