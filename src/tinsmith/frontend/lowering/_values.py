"""The values of a kernel's expressions during lowering.

What is known at compile time (a number, a string, a list, a type, a function, a module) is Python's own value. What
only the run knows is an IR expression. The containers of this file hold vectors, structs and arrays as such numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import numpy as np

from ...engines import Language
from ...ir import nodes

Scalar: TypeAlias = "nodes.Expr"
# A tuple: `isinstance` is faster with one than with a union.
_EXPRESSIONS = get_args(nodes.Expr)


@dataclass(frozen=True)
class Matrix:
    """A vector or matrix: one expression for each entry, in row-major order, all of one type."""

    shape: tuple[int, ...]
    entries: tuple[Scalar, ...]

    def __getitem__(self, index: tuple[int, ...]) -> Scalar:
        return self.entries[flat(index, self.shape)]

    @property
    def indices(self) -> list[tuple[int, ...]]:
        """The indices of the entries, in their order."""
        return list(itertools.product(*(range(size) for size in self.shape)))

    @property
    def rows(self) -> list[Any]:
        """The entries as a list, or as a list of rows."""
        if len(self.shape) == 1:
            return list(self.entries)
        width = self.shape[1]
        return [list(self.entries[row * width : (row + 1) * width]) for row in range(self.shape[0])]


@dataclass(frozen=True)
class Struct:
    """A struct: its members and its methods by name."""

    members: Mapping[str, Any]
    methods: Mapping[str, Any]


@dataclass(frozen=True)
class ArrayValue:
    """An array of the kernel as a whole. `shape` holds numbers if it is a field; `first` is its first index."""

    array: nodes.Array
    shape: tuple[int | Scalar, ...]
    first: tuple[int, ...]
    is_dense: bool = True


@dataclass(frozen=True)
class BoundFunction:
    """A method with the object that it is called on: `v.norm`, `ray.at`."""

    function: Any
    owner: Any


@dataclass(frozen=True)
class DynamicEntry:
    """An entry of a matrix at an index that is known only at run time."""

    matrix: Matrix
    index: tuple[int | Scalar, ...]


@dataclass(frozen=True)
class Ranges:
    """The result of `ndrange`: first value and end of each dim.

    `order` lists the dims from the outermost loop to the innermost one; () is their own order.
    """

    bounds: tuple[tuple[Any, Any], ...]
    is_grouped: bool = False
    order: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[Any]:
        order = self.order or tuple(range(len(self.bounds)))
        # The loops nest in `order`, but an index lists the dims in their own.
        places = [order.index(dim) for dim in range(len(order))]
        for index in itertools.product(*(range(*self.bounds[dim]) for dim in order)):
            yield tuple([index[place] for place in places])


def read_ranges(language: Language, value: Any) -> Any:
    """Convert the result of an `ndrange` outside the kernel; return other values unchanged."""
    known = language.ranges_of(value)
    return value if known is None else Ranges(tuple(known[0]), order=known[1])


def flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the position of an entry in row-major order. Raise IndexError if it is out of range."""
    if len(index) != len(shape) or not all(0 <= i < size for i, size in zip(index, shape, strict=True)):
        raise IndexError(index)
    return index[0] if len(shape) == 1 else index[0] * shape[1] + index[1]


def is_expression(value: object) -> bool:
    """Return True if a value is a number that is known only at run time."""
    return isinstance(value, _EXPRESSIONS)


def is_number(value: object) -> bool:
    """Return True if a value is a number that is known at compile time."""
    return isinstance(value, bool | int | float)


def plain(value: Any) -> Any:
    """Return a NumPy number as Python's own; return other values unchanged."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.shape):
        return value.item()
    return value


def map_numbers(value: Any, change: Callable[[Scalar], Any]) -> Any:
    """Apply a function to every number in a value, and keep the containers around them."""
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
    """Describe a value for an error message."""
    if isinstance(value, Matrix):
        return f"a matrix of shape {value.shape}"
    if isinstance(value, ArrayValue):
        return f"the array `{value.array.label or value.array.name}` as a whole"
    if is_number(value):
        return f"the number {value}"
    if is_expression(value):
        return "a number"
    return _KINDS.get(type(value), f"an object of type `{type(value).__name__}`")


# The names of these classes are ours, and would not tell a user anything.
_KINDS = {
    BoundFunction: "a method",
    DynamicEntry: "a number",
    Ranges: "an `ndrange`",
    Struct: "a struct",
}
