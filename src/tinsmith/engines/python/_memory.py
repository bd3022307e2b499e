"""Arrays and fields as kernels see them. Each access is checked."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ._numbers import KINDS
from ._values import Element, Matrix, Struct, StructElement, flatten

if TYPE_CHECKING:
    from ._operations import Operations

_INDICES = frozenset({int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64})


class ArrayView:
    """An array argument or a field: numbers, vectors or matrices in memory. Each access is checked.

    Args:
        name: the kernel's name for it.
        data: the memory, with the dims of an element last.
        element: the dims of an element.
        operations: used to convert its numbers.
        label: the array with the names of its dims, for messages: "x[n, m]".
        first: the first index of each dim.
        is_clamped: whether an index out of range is clamped to the nearest one inside.
        written: whether each of its numbers was written, in the shape of the memory; None if that is not tracked.
    """

    def __init__(
        self,
        name: str,
        data: np.ndarray,
        element: tuple[int, ...],
        operations: Operations,
        label: str = "",
        first: tuple[int, ...] = (),
        is_clamped: bool = False,
        written: np.ndarray | None = None,
    ) -> None:
        self._name, self._data, self._element, self._operations = name, data, element, operations
        rank = data.ndim - len(element)
        self._sizes = data.shape[:rank]
        self._label = label or name
        self._first = first if any(first) else ()
        self._is_clamped = is_clamped
        self.is_changed = False
        self._kind = KINDS[data.dtype.type]
        self._written = written
        self._cast = operations.casts[self._kind]
        self.shape: tuple[Any, ...] = tuple(np.int32(size) for size in self._sizes)

    @property
    def first(self) -> tuple[int, ...]:
        """The first index of each dim."""
        return self._first or (0,) * len(self._sizes)

    @property
    def dtype_name(self) -> str:
        """The name of the numbers' type, such as "f32"."""
        return self._kind

    @property
    def data(self) -> np.ndarray:
        """The memory as a NumPy array."""
        return self._data

    @property
    def n(self) -> int:
        """The number of rows of an element."""
        return self._element[0]

    @property
    def m(self) -> int:
        """The number of columns of an element."""
        return self._element[1] if len(self._element) == 2 else 1

    @property
    def sample(self) -> Any:
        """A zero of the type of the elements."""
        zero = self._cast(0)
        return Matrix(self._element, [zero] * math.prod(self._element), self._operations) if self._element else zero

    def __len__(self) -> int:
        return self._sizes[0]

    def __getitem__(self, index: Any) -> Any:
        at = self._locate(index)
        if self._written is not None and not self._written[at].all():
            raise ValueError(
                f"{self._name}[{self._show(at)}] is read before it is written, and its memory is uninitialized"
            )
        element = self._data[at]
        return Matrix(self._element, list(element.ravel()), self._operations) if self._element else element

    def __setitem__(self, index: Any, value: Any) -> None:
        at = self._locate(index)
        self.is_changed = True
        if self._written is not None:
            self._written[at] = True
        if not self._element:
            self._data[at] = value if KINDS.get(type(value)) == self._kind else self._cast(value)
            return
        values = [value] * math.prod(self._element) if np.isscalar(value) else flatten(value)
        if len(values) != math.prod(self._element):
            raise ValueError(
                f"cannot assign {len(values)} numbers to an element of `{self._name}`, which has shape {self._element}"
            )
        numbers = np.empty(len(values), self._data.dtype)
        numbers[:] = [self._cast(one) for one in values]
        self._data[at] = numbers.reshape(self._element)

    def element_at(self, index: Any) -> Any:
        """Return the element at an index; storing to parts of a vector or matrix changes the array."""
        at = self._locate(index)
        self.is_changed = True
        written = None if self._written is None else self._written[at]
        return Element(self._data[at], self._operations, written) if self._element else self._data[at]

    def _locate(self, index: Any) -> tuple[Any, ...]:
        """Return the index of an element in the memory. Raise IndexError if it is out of range."""
        parts: Any = index if type(index) is tuple else (index,)
        if not all(type(part) in _INDICES for part in parts):
            parts = tuple(_flatten_index(parts, self._name))
        sizes = self._sizes
        if len(parts) != len(sizes):
            raise IndexError(f"`{self._name}` has {len(sizes)} dims, but is indexed with {len(parts)} indices")
        if self._first:
            parts = tuple(int(part) - start for part, start in zip(parts, self._first, strict=True))
        for part, size in zip(parts, sizes, strict=True):
            if not 0 <= part < size:
                return self._locate_outside(parts)
        return parts

    def _locate_outside(self, parts: tuple[Any, ...]) -> tuple[int, ...]:
        if self._is_clamped:
            return tuple(min(max(int(part), 0), size - 1) for part, size in zip(parts, self._sizes, strict=True))
        shown = self._show(parts)
        # A label includes the dims of an element.
        whole = self._sizes if self._label == self._name else self._data.shape
        sizes = str(whole) if len(whole) != 1 else f"{whole[0]}"
        raise IndexError(f"{self._name}[{shown}] is out of range for {self._label} = {sizes}")

    def _show(self, parts: tuple[Any, ...]) -> str:
        """Format the index of an element as the kernel writes it: "3, 5"."""
        return ", ".join(str(int(part) + start) for part, start in zip(parts, self.first, strict=True))

    def indices(self) -> Iterator[tuple[int, ...]]:
        """Yield the indices of all elements, with the last dim varying fastest."""
        return itertools.product(
            *(range(start, start + size) for start, size in zip(self.first, self._sizes, strict=True))
        )

    def fill(self, value: Any) -> None:
        """Store a value in every element."""
        for index in self.indices():
            self[index] = value

    def __repr__(self) -> str:
        return f"{self._label} = {self._data!r}"


class FieldView(ArrayView):
    """A view of a field's content.

    `find_gradient` returns the view of its gradient field; `dtype` is the engine's object.
    """

    find_gradient: Callable[[], ArrayView]
    dtype: Any = None

    @property
    def grad(self) -> ArrayView:
        """The view of the gradient field."""
        return self.find_gradient()

    @property
    def snode(self) -> Any:
        """Its placement: the engines' own `copy_from` reads its offset, `field.snode.ptr.offset`."""
        return SimpleNamespace(ptr=SimpleNamespace(offset=self.first))


class StructField:
    """A field whose elements are structs: a view of one field for each member, by the member's name."""

    def __init__(self, views: dict[str, Any], methods: Any) -> None:
        self.views, self._methods = views, methods

    @property
    def shape(self) -> tuple[Any, ...]:
        return next(iter(self.views.values())).shape

    def __getattr__(self, name: str) -> Any:
        if name == "views" or name not in self.views:
            raise AttributeError(name)
        return self.views[name]

    def find_gradient(self) -> StructField:
        """Return the gradients of the members as a field of structs."""
        return StructField({name: view.find_gradient() for name, view in self.views.items()}, {})

    @property
    def grad(self) -> StructField:
        """The gradients of the members, as a field of structs."""
        return self.find_gradient()

    def __getitem__(self, index: Any) -> Struct:
        return Struct({name: view[index] for name, view in self.views.items()}, dict(self._methods))

    def __setitem__(self, index: Any, value: Any) -> None:
        members = value.members if isinstance(value, Struct) else value
        for name, view in self.views.items():
            view[index] = members[name]

    def element_at(self, index: Any) -> StructElement:
        """Return the struct at an index; storing to its members changes the fields."""
        return StructElement(self.views, index, dict(self._methods))


def _flatten_index(index: Any, name: str) -> Iterator[Any]:
    """Yield the integers of an index: those of a vector or tuple in order, none for None."""
    if index is None:
        return
    if isinstance(index, Matrix):
        index = index.entries
    if isinstance(index, tuple | list):
        for part in index:
            yield from _flatten_index(part, name)
    elif type(index) in _INDICES:
        yield index
    elif isinstance(index, int | np.bool_):
        yield int(index)
    else:
        raise TypeError(
            f"`{name}` was indexed with a {type(index).__name__}; an index must be an integer or a vector of integers"
        )


_MASKS: dict[int, tuple[weakref.ref[torch.Tensor], np.ndarray]] = {}
"""A tensor and a mask of its elements that were written, by the tensor's address."""


def track_writes(memory: torch.Tensor) -> torch.Tensor:
    """Register a tensor as uninitialized, and return it.

    Reading one of its elements is an error until a kernel has written it.
    """
    address = memory.data_ptr()
    # Another tensor may get its address as soon as it is freed.
    _MASKS[address] = (weakref.ref(memory, lambda gone: _forget(address, gone)), np.zeros(memory.numel(), np.bool_))
    return memory


def _forget(address: int, gone: weakref.ref[torch.Tensor]) -> None:
    if address in _MASKS and _MASKS[address][0] is gone:
        del _MASKS[address]


def find_write_mask(address: int, count: int) -> np.ndarray | None:
    """Return the flat mask of the elements that kernels have written; None if writes to the array are not tracked."""
    known = _MASKS.get(address)
    return known[1] if known is not None and len(known[1]) == count else None
