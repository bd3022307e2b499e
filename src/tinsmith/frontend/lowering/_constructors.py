"""Calls of types: `ti.f32(x)`, `ti.Vector([...])`, `vec3(...)`, `Ray(origin, direction)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import Misfit, Type, types
from ._lowering import Lowering
from ._values import Matrix, Struct, is_expression, is_number, kind_of, plain

_MATRICES = ("lang.matrix.Vector", "lang.matrix.Matrix")


def construct(low: Lowering, function: Any, positional: list[Any], named: dict[str, Any]) -> Any:
    """Return what a type of the engine's makes of its arguments, or NotImplemented for any other callee."""
    kind = low.scalar_type(function)
    if kind is not None:
        return _number(low, kind, positional)
    if low.language.name_of(function) in _MATRICES:
        return _construct_matrix(low, *positional, **named)
    if low.language.name_of(function) == "lang.struct.Struct":
        members = positional[0] if positional else named
        return Struct({name: _member(low, value) for name, value in members.items()}, {})
    matrix = _matrix_type(low, function)
    if matrix is not None:
        return _construct_typed(low, *matrix, positional)
    struct = low.language.struct_type(function)
    if struct is not None:
        return _struct(low, struct, positional, named)
    return NotImplemented


def _matrix_type(low: Lowering, value: Any) -> tuple[tuple[int, ...], Type | None] | None:
    """Return dims and dtype of a vector or matrix type, or None for any other value.

    The dtype of `ti.math.vec3` is the default of the engine that runs the kernel, which may not be the type's engine.
    """
    matrix = low.matrix_type(value)
    # Taichi fixes the dtype of `vec3` when it starts: in a kernel that runs on Quadrants in float64 it would be f32.
    default = None if matrix is None else low.language.default_of(value)
    return matrix if matrix is None or default is None else (matrix[0], getattr(low.ops.defaults, default))


def _number(low: Lowering, kind: Type, values: list[Any]) -> Any:
    """Lower `ti.f32(x)`: convert a value, or give a literal that type."""
    value = values[0]
    if is_expression(value):
        return low.ops.cast(value, kind)
    if not is_number(value) or types.is_float(kind) is not isinstance(value, float):
        raise Misfit(f"`{kind}({value!r})`, a conversion that engines do not have")
    return low.ops.constant(value, kind)


def dtype(low: Lowering, value: Any) -> Type | None:
    """Return the type for a dtype of the engine's or for Python's `float`, `int` or `bool`; None stays None."""
    kind = number_type(low, value)
    if kind is None and value is not None:
        raise Misfit(f"{value!r}, which is not a dtype")
    return kind


def number_type(low: Lowering, value: Any) -> Type | None:
    """Return the type for a dtype, the engine's or Python's, as `dtype` does; None for any other value."""
    python = {float: low.ops.defaults.fp, int: low.ops.defaults.ip, bool: Type.U1}
    return python.get(value) if isinstance(value, type) else low.scalar_type(value)


def _construct_matrix(low: Lowering, arr: Any, dt: Any = None) -> Matrix:
    kind = dtype(low, dt)
    if isinstance(arr, Matrix):
        return low.ops.cast(arr, kind) if kind else arr
    return low.ops.matrix(arr.tolist() if isinstance(arr, np.ndarray) else arr, kind)


def _describe_shape(shape: tuple[int, ...]) -> str:
    return f"a vector of {shape[0]} entries" if len(shape) == 1 else f"a {shape[0]} x {shape[1]} matrix"


def _construct_typed(low: Lowering, shape: tuple[int, ...], kind: Type | None, values: list[Any]) -> Matrix:
    """Lower `vec3(1.0)`, `vec3(a, b, c)`, `vec4(v.xyz, 1.0)` or `mat2(...)`."""
    size = shape[0] if len(shape) == 1 else shape[0] * shape[1]
    if len(values) == 1:
        value = values[0]
        if isinstance(value, Matrix):
            # Not converted to `kind`: the engines keep the type of such a matrix.
            if value.shape != shape:
                words = f"{_describe_shape(shape)} made from {_describe_shape(value.shape)}"
                raise Misfit(words, "Take the entries that it needs, such as `v.xyz`")
            return value
        if is_number(value) or is_expression(value):
            return low.ops.build_matrix([low.state.share(low.ops.scalar(value))] * size, shape, kind)
        values = low.language.rows_of(value) or list(value)
    entries: list[Any] = []
    for value in values:
        rows = low.language.rows_of(value)
        if isinstance(value, Matrix):
            if len(value.shape) > 1 or len(values) == 1:
                words = f"a list of entries with {kind_of(value)} in it, for a matrix of shape {shape}"
                raise Misfit(words, "List numbers, or several vectors")
            entries += value.entries
        elif rows is not None or isinstance(value, list | tuple):
            entries += rows if rows is not None else value
        elif isinstance(value, np.ndarray):
            entries += value.ravel().tolist()
        else:
            entries.append(value)
    return low.ops.build_matrix([x for e in entries for x in (e if isinstance(e, list | tuple) else [e])], shape, kind)


def _struct(low: Lowering, facts: Any, positional: list[Any], named: dict[str, Any]) -> Struct:
    try:
        bound = list(facts.bind(positional, named))
    except TypeError as reason:
        raise Misfit(str(reason)) from None
    return Struct({name: as_member(low, kind, value) for name, kind, value in bound}, facts.methods)


def _member(low: Lowering, value: Any) -> Any:
    """Return a value as a member of a struct that has no type."""
    if isinstance(value, dict):
        return Struct({name: _member(low, item) for name, item in value.items()}, {})
    return value if isinstance(value, Struct) else low.ops.tensor(value)


def convert_python_value(low: Lowering, value: Any) -> Any:
    """Convert a vector, matrix or struct that Python holds to expressions; return other values unchanged."""
    rows = low.language.rows_of(value)
    if rows is not None:
        return low.ops.matrix(rows)
    facts = None if low.engine.is_field(value) else low.language.struct_of(value)
    if facts is None:
        return value
    return Struct({name: convert_python_value(low, plain(item)) for name, item in facts.members.items()}, facts.methods)


def as_member(low: Lowering, kind: Any, value: Any) -> Any:
    """Convert a value to the type of a struct's member."""
    scalar = low.scalar_type(kind)
    if scalar is not None:
        return low.ops.cast(value, scalar)
    matrix = _matrix_type(low, kind)
    if matrix is not None:
        made = _construct_typed(low, *matrix, [value])
        return low.ops.cast(made, matrix[1]) if matrix[1] else made
    facts = low.language.struct_type(kind)
    if facts is None:
        raise Misfit(f"a struct member of type {kind!r}")
    if isinstance(value, Struct):
        return Struct(
            {name: as_member(low, k, value.members[name]) for name, k in facts.members.items()}, facts.methods
        )
    if isinstance(value, dict):
        return _struct(low, facts, [], value)
    return Struct({name: as_member(low, k, value) for name, k in facts.members.items()}, facts.methods)
