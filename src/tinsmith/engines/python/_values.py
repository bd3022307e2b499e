"""Values of the Python engine that hold several numbers: vectors, matrices, structs, and arrays in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._language import find_swizzle
from ._numbers import KINDS, Rule


class EntryOperations(Protocol):
    """The members of `Operations` that a vector or matrix uses."""

    @property
    def call(self) -> Callable[..., Any]:
        """Calls a method, given the engine's function, the vector or matrix and the arguments."""
        ...

    @property
    def casts(self) -> Mapping[str, Rule]:
        """Conversions of numbers, by the name of the target type."""
        ...

    @property
    def method_of(self) -> Callable[[str], Any]:
        """Returns the engine's function that implements a method, by its name."""
        ...


class BoundFunction(NamedTuple):
    """A function with its first argument bound: `v.norm`, `ray.at`."""

    function: Any
    owner: Any

    def __call__(self, *positional: Any, **named: Any) -> Any:
        # Kernels call an interpreter instead; this is for a debugger's prompt.
        if not isinstance(self.owner, Matrix):
            raise TypeError(
                "a struct's function can be called only in a kernel: assign its result "
                "to a local variable, and print that"
            )
        return self.owner.operations.call(self.function, self.owner, *positional, **named)


class Matrix:
    """A vector or matrix: numbers of one type, row by row.

    Each local variable has its own. `operations` convert its numbers and find its methods.
    """

    __slots__ = ("entries", "operations", "shape")
    # Makes NumPy scalars leave an operation with a matrix to the matrix.
    __array_ufunc__ = None

    def __init__(self, shape: tuple[int, ...], entries: list[Any], operations: EntryOperations) -> None:
        self.shape = shape
        self.entries = entries
        self.operations = operations

    @property
    def kind(self) -> str:
        """The type of the entries."""
        return KINDS[type(self.entries[0])]

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.shape[0]

    @property
    def m(self) -> int:
        """The number of columns."""
        return self.shape[1] if len(self.shape) == 2 else 1

    @property
    def rows(self) -> list[Any]:
        """The numbers of a vector, or a list of rows of a matrix."""
        if len(self.shape) == 1:
            return list(self.entries)
        width = self.shape[1]
        return [self.entries[row * width : (row + 1) * width] for row in range(self.shape[0])]

    def copy(self) -> Matrix:
        """Return a copy of the vector or matrix with its own entries."""
        return Matrix(self.shape, self.entries.copy(), self.operations)

    def get_shape(self) -> tuple[int, ...]:
        """Return the dims: (n,) of a vector, (n, m) of a matrix."""
        return self.shape

    def store(self, values: Sequence[Any]) -> None:
        """Replace the entries; each number is converted to the matrix's type."""
        cast = self.operations.casts[self.kind]
        for place, value in enumerate(values):
            self._put(place, cast(value))

    def _put(self, place: int, value: Any) -> None:
        self.entries[place] = value

    def _place(self, index: Any) -> int:
        parts = index if type(index) is tuple else (index,)
        if any(isinstance(part, Matrix | tuple | list) for part in parts):
            parts = tuple(flatten(parts))
        if len(parts) != len(self.shape):
            raise IndexError(f"a matrix of shape {self.shape} cannot have {len(parts)} indices")
        for part, size in zip(parts, self.shape, strict=True):
            if not 0 <= part < size:
                shown = ", ".join(map(str, parts))
                raise IndexError(f"[{shown}] is out of range for a vector or matrix of shape {self.shape}")
        return int(parts[0]) if len(parts) == 1 else int(parts[0]) * self.shape[1] + int(parts[1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) or (isinstance(index, tuple) and any(isinstance(one, slice) for one in index)):
            return self._slice(index if isinstance(index, tuple) else (index,))
        return self.entries[self._place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        cast = self.operations.casts[self.kind]
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(one, slice) for one in parts):
            places = [self._place(at) for at in itertools.product(*self._ranges(parts))]
            for place, one in zip(places, list_numbers(value, len(places)), strict=True):
                self._put(place, cast(one))
            return
        self._put(self._place(index), cast(value))

    def _ranges(self, index: tuple[Any, ...]) -> list[Any]:
        """Return the selected indices in each dim, from an index of slices and numbers."""
        return [
            range(*one.indices(size)) if isinstance(one, slice) else [int(one)]
            for one, size in zip(index, self.shape, strict=True)
        ]

    def _slice(self, index: tuple[Any, ...]) -> Matrix:
        ranges = self._ranges(index)
        kept = tuple(len(chosen) for chosen, one in zip(ranges, index, strict=True) if isinstance(one, slice))
        entries = [self.entries[self._place(at)] for at in itertools.product(*ranges)]
        return Matrix(kept, entries, self.operations)

    def __iter__(self) -> Iterator[Any]:
        if len(self.shape) == 1:
            return iter(self.entries)
        return iter([Matrix((self.shape[1],), row, self.operations) for row in self.rows])

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        raise TypeError("a condition must be a number, not a vector or matrix; use `any()` or `all()`")

    def places_of(self, name: str) -> tuple[int, ...] | None:
        """Return the entries that a swizzle such as `x` or `zyx` selects; None if the name is not a swizzle."""
        return find_swizzle(name, self.shape[0]) if len(self.shape) == 1 else None

    def __getattr__(self, name: str) -> Any:
        places = self.places_of(name)
        if places is not None:
            entries = [self.entries[place] for place in places]
            return entries[0] if len(entries) == 1 else Matrix((len(entries),), entries, self.operations)
        method = None if name.startswith("__") else self.operations.method_of(name)
        if method is None:
            raise AttributeError(f"a vector or matrix has no `{name}`")
        return BoundFunction(method, self)

    def __repr__(self) -> str:
        shown = [str(one) for one in self.entries]
        if len(self.shape) == 1:
            return f"[{', '.join(shown)}]"
        width = self.shape[1]
        rows = [", ".join(shown[start : start + width]) for start in range(0, len(shown), width)]
        return f"[{', '.join(f'[{row}]' for row in rows)}]"


def _add_operators() -> None:
    """Define Python's operators (`+`, `<`, `@`, ...) on vectors and matrices, for use at a debugger's prompt.

    Kernels do not use them: they call the interpreter's functions.
    """
    names = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "pow"}
    comparisons = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for word, name in (names | comparisons).items():
        setattr(Matrix, f"__{word}__", lambda one, other, name=name: one.operations.binary(name)(one, other))
    for word, name in names.items():
        setattr(Matrix, f"__r{word}__", lambda one, other, name=name: one.operations.binary(name)(other, one))
    for word, name in (("neg", "neg"), ("abs", "abs")):
        setattr(Matrix, f"__{word}__", lambda one, name=name: one.operations.unary(name)(one))
    setattr(Matrix, "__matmul__", lambda one, other: one.operations.matmul(one, other))  # noqa: B010  # as above


_add_operators()


class Element(Matrix):
    """A vector or matrix in an array: storing to an entry changes the array."""

    __slots__ = ("memory", "written")

    def __init__(self, memory: np.ndarray, operations: EntryOperations, written: np.ndarray | None = None) -> None:
        super().__init__(memory.shape, list(memory.ravel()), operations)
        self.memory, self.written = memory, written

    def _put(self, place: int, value: Any) -> None:
        self.entries[place] = value
        at = np.unravel_index(place, self.shape)
        self.memory[at] = value
        if self.written is not None:
            self.written[at] = True


class Struct:
    """A struct: its members by name, and the functions that can be called on it."""

    __slots__ = ("members", "methods")

    def __init__(self, members: dict[str, Any], methods: Mapping[str, Any]) -> None:
        self.members = members
        self.methods = methods

    def copy(self) -> Struct:
        """Return a copy of the struct, with copies of vectors and structs in it."""
        members = {n: one.copy() if isinstance(one, Matrix | Struct) else one for n, one in self.members.items()}
        return Struct(members, self.methods)

    def put(self, name: str, value: Any) -> None:
        """Replace a member that is a number."""
        self.members[name] = value

    @property
    def keys(self) -> list[str]:
        """The names of the members."""
        return list(self.members)

    def __getattr__(self, name: str) -> Any:
        if name in ("members", "methods"):
            raise AttributeError(name)
        if name in self.members:
            return self.members[name]
        if name in self.methods:
            return BoundFunction(self.methods[name], self)
        raise AttributeError(f"a struct with {', '.join(self.members)} has no `{name}`")

    def __repr__(self) -> str:
        return f"Struct({', '.join(f'{name}={value!r}' for name, value in self.members.items())})"


class StructElement(Struct):
    """A struct in a field: storing to a member changes the field."""

    __slots__ = ("_index", "_views")

    def __init__(self, views: Mapping[str, Any], index: Any, methods: Mapping[str, Any]) -> None:
        super().__init__({name: view.element_at(index) for name, view in views.items()}, methods)
        self._views, self._index = views, index

    def put(self, name: str, value: Any) -> None:
        self._views[name][self._index] = value
        self.members[name] = self._views[name][self._index]


def list_numbers(value: Any, count: int) -> list[Any]:
    """Return `count` numbers: the entries of a vector or matrix, or one number repeated.

    Raises ValueError if a vector or matrix has another number of entries.
    """
    if not isinstance(value, Matrix | list | tuple):
        return [value] * count
    values = flatten(value)
    if len(values) != count:
        raise ValueError(f"cannot assign {len(values)} numbers to {count} entries of a vector or matrix")
    return values


def flatten(value: Any) -> list[Any]:
    """Return the numbers of a vector, a matrix or nested lists, row by row."""
    if isinstance(value, Matrix):
        return value.entries
    if isinstance(value, list | tuple | np.ndarray):
        return [number for item in value for number in flatten(item)]
    return [value]
