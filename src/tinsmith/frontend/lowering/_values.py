"""Values that an expression of a kernel has while it is lowered.

A number that is known, a text, a list, a type, a function, a module: Python's own value. What is known at run time
only is an IR expression. Between them stand the few containers of this file, which take vectors, structs
and arrays apart into such numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import numpy as np

from ...ir import nodes

Scalar: TypeAlias = "nodes.Expr"
_EXPRESSIONS = get_args(nodes.Expr)  # a tuple, which `isinstance` goes through faster than a union


@dataclass(frozen=True)
class Matrix:
    """A vector or matrix: one expression an entry, row by row, all of one type."""

    shape: tuple[int, ...]
    entries: tuple[Scalar, ...]

    def __getitem__(self, index: tuple[int, ...]) -> Scalar:
        return self.entries[flat(index, self.shape)]

    @property
    def indices(self) -> list[tuple[int, ...]]:
        """Indices of the entries, in their order."""
        return list(itertools.product(*(range(size) for size in self.shape)))

    @property
    def rows(self) -> list[Any]:
        """A list of expressions, or of such lists."""
        if len(self.shape) == 1:
            return list(self.entries)
        width = self.shape[1]
        return [list(self.entries[row * width : (row + 1) * width]) for row in range(self.shape[0])]


@dataclass(frozen=True)
class Struct:
    """A struct: its members by name, and the functions that may be called on it."""

    members: Mapping[str, Any]
    methods: Mapping[str, Any]


@dataclass(frozen=True)
class ArrayValue:
    """An array of the kernel, whole. `shape` are numbers where it is a field; `first` its first index."""

    array: nodes.Array
    shape: tuple[int | Scalar, ...]
    first: tuple[int, ...]
    is_dense: bool = True


@dataclass(frozen=True)
class BoundFunction:
    """A function with its first argument: `v.norm`, `ray.at`."""

    function: Any
    owner: Any


@dataclass(frozen=True)
class DynamicEntry:
    """An entry of a matrix by an index that only the run knows."""

    matrix: Matrix
    index: tuple[int | Scalar, ...]


@dataclass(frozen=True)
class Ranges:
    """What `ndrange` gives: first value and end of each dim.

    `order` are the dims from the outermost loop to the innermost one; () is their own order.
    """

    bounds: tuple[tuple[Any, Any], ...]
    is_grouped: bool = False
    order: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[Any]:
        order = self.order or tuple(range(len(self.bounds)))
        places = [order.index(dim) for dim in range(len(order))]
        for index in itertools.product(*(range(*self.bounds[dim]) for dim in order)):
            yield tuple([index[place] for place in places])


def read_ranges(name: str, value: Any) -> Any:
    """What Python has made of `ndrange`, by the engine's name for its class: as if the kernel had called it."""
    if name != "lang._ndrange._Ndrange":
        return value
    bounds = tuple([(int(first), int(end)) for first, end in value.bounds])
    # Quadrants has `axes`: the bounds are then in the order of the loops, which is another than that of the indices.
    order = tuple(getattr(value, "axes", None) or range(len(bounds)))
    return Ranges(tuple([bounds[order.index(dim)] for dim in range(len(bounds))]), order=order)


def flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The place of an entry, row by row. Raises IndexError outside."""
    if len(index) != len(shape) or not all(0 <= i < size for i, size in zip(index, shape, strict=True)):
        raise IndexError(index)
    return index[0] if len(shape) == 1 else index[0] * shape[1] + index[1]


def is_expression(value: object) -> bool:
    """Whether a value is a number that only the run knows."""
    return isinstance(value, _EXPRESSIONS)


def is_number(value: object) -> bool:
    """Whether a value is a number that is known."""
    return isinstance(value, bool | int | float)


def plain(value: Any) -> Any:
    """A number of numpy's as Python's own; other values as they are."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.shape):
        return value.item()
    return value


def map_numbers(value: Any, change: Callable[[Scalar], Any]) -> Any:
    """A value with each number that only the run knows, or that is known, changed; containers are kept."""
    if isinstance(value, Matrix):
        return Matrix(value.shape, tuple(change(entry) for entry in value.entries))
    if isinstance(value, Struct):
        return Struct({name: map_numbers(member, change) for name, member in value.members.items()}, value.methods)
    if isinstance(value, list | tuple):
        return type(value)([map_numbers(item, change) for item in value])
    if isinstance(value, dict):
        return {key: map_numbers(item, change) for key, item in value.items()}
    return change(value) if is_expression(value) or is_number(value) else value


def kind_of(value: Any) -> str:
    """A value as messages tell it."""
    if isinstance(value, Matrix):
        return f"a matrix of shape {value.shape}"
    return f"a {type(value).__name__}"
