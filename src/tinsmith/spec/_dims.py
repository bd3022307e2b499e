"""Dims: the parts of a parsed spec.

Only nouns live here: the kinds of dim, an item (one array of the kernel), the spec. How text
becomes these is `_parse`'s business, which sizes they stand for in a call is `_solve`'s. All are
frozen, compare by value, and pickle; `str` gives back the language that they were read from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from .._lazy import lazy
from ._arithmetic import Tree, tree_names

UPDATED = "inout"
"""The word before an input that the kernel changes in place."""

PROMISES = {
    "unique": "all of its numbers are different",
    "segments": "its rows are [start, count], and no two of the segments share a place",
    "ranges": "its rows are [start, end), and no two of the ranges share a place",
    "offsets": "none of its numbers is below 0 or below the one before it",
}
"""Words before an input of whole numbers that say what its numbers are, for each sample of a batch by itself."""


@dataclass(frozen=True)
class Named:
    """A dim with a name: equal names have equal sizes."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Fixed:
    """A dim of a size that the spec itself gives."""

    size: int

    def __str__(self) -> str:
        return str(self.size)


@dataclass(frozen=True)
class Arithmetic:
    """A dim of an output or scratch whose size is computed."""

    text: str
    tree: Tree

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Anything:
    """`_`: a dim of an input whose size does not matter."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True)
class Rest:
    """`...`: any number of dims, the same for all items that write it."""

    def __str__(self) -> str:
        return "..."


@dataclass(frozen=True)
class Batch:
    """`*b`: any number of leading dims that the kernel does not see."""

    name: str

    def __str__(self) -> str:
        return f"*{self.name}"


Dim: TypeAlias = Named | Fixed | Arithmetic | Anything | Rest | Batch

DimSizes: TypeAlias = tuple[str | int | None, ...]
"""The size of each axis of an array, as far as it is known before a call.

A number; or text, which stands for one size in the whole op; or None where nothing is known.
"""


class Layout(NamedTuple):
    """How an input's shape is taken apart: `*b` first, then its plain dims with `...` somewhere among them.

    A plain dim is a name, a size, or None for `_`: what `_solve` compares with, without asking for its kind.
    """

    has_batch: bool
    has_rest: bool
    before_rest: int  # how many plain dims stand before `...`
    plain: DimSizes


@dataclass(frozen=True)
class Item:
    """One array of the kernel: its name, its dims, its dtype if the spec fixes it.

    One that `is_updated` is an input that the kernel changes in place. `promise` is a word of `PROMISES`, or "".
    """

    name: str
    dims: tuple[Dim, ...]
    dtype: str | None = None
    column: int = field(default=0, compare=False)  # where it stands in the text it was read from, for carets
    is_updated: bool = False
    promise: str = ""
    label: str = field(default="", compare=False)  # how the spec writes a member of a struct: `state.q` for `state_q`

    def __str__(self) -> str:
        word = f"{UPDATED} " if self.is_updated else f"{self.promise} " if self.promise else ""
        return f"{word}{self.label or self.name}{self.brackets}" + (f": {self.dtype}" if self.dtype else "")

    @lazy
    def brackets(self) -> str:
        """The dims as written in a spec: `[n, 3]`."""
        return f"[{', '.join(map(str, self.dims))}]"

    @lazy
    def batch_name(self) -> str | None:
        """The `b` of its `*b`."""
        return self.dims[0].name if self.dims and isinstance(self.dims[0], Batch) else None

    @lazy
    def has_rest(self) -> bool:
        """Whether one of its dims is `...`."""
        return Rest() in self.dims

    @lazy
    def names(self) -> tuple[str, ...]:
        """Every dim name that it mentions, those inside arithmetic included."""
        return tuple(dict.fromkeys(name for dim in self.dims for name in _names_of(dim)))

    @lazy
    def sizes(self) -> DimSizes:
        """The sizes of the dims that a kernel sees; () with `...`."""
        return () if self.has_rest else self.layout.plain

    @lazy
    def layout(self) -> Layout:
        """The dims of an input, made ready for solving."""
        seen = [dim for dim in self.dims if not isinstance(dim, Batch)]
        before = seen.index(Rest()) if self.has_rest else len(seen)
        plain = tuple(_size_of(dim) for dim in seen if not isinstance(dim, Rest))
        return Layout(self.batch_name is not None, self.has_rest, before, plain)


@dataclass(frozen=True)
class Spec:
    """What an op takes, what it gives back, and what it needs in between."""

    text: str
    scratch_text: str
    inputs: tuple[Item, ...]
    outputs: tuple[Item, ...]
    scratch: tuple[Item, ...]

    def __str__(self) -> str:
        left, right = (", ".join(map(str, side)) for side in (self.inputs, self.outputs))
        return f"{left} -> {right}".strip()

    @property
    def items(self) -> tuple[Item, ...]:
        """Inputs, outputs and scratch, in this order."""
        return self.inputs + self.allocations

    @lazy
    def allocations(self) -> tuple[Item, ...]:
        """What the op allocates: outputs, then scratch."""
        return self.outputs + self.scratch

    @lazy
    def updated_inputs(self) -> tuple[Item, ...]:
        """The inputs that the kernel changes in place."""
        return tuple(item for item in self.inputs if item.is_updated)

    @lazy
    def batch_name(self) -> str | None:
        """The `b` of `*b`, when the op runs in batches."""
        return next((item.batch_name for item in self.items if item.batch_name), None)

    @lazy
    def input_dims(self) -> tuple[str, ...]:
        """The dim names that inputs fix."""
        return tuple(dict.fromkeys(name for item in self.inputs for name in item.names))

    @lazy
    def free_dims(self) -> tuple[str, ...]:
        """The dim names that no input fixes: integer scalars of the kernel, or keywords of the call."""
        names = dict.fromkeys(name for item in self.allocations for name in item.names)
        return tuple(name for name in names if name not in self.input_dims)

    @lazy
    def solving_order(self) -> tuple[Item, ...]:
        """The inputs, those last whose `*b` and `...` only the others can tell apart."""
        return tuple(sorted(self.inputs, key=lambda item: item.batch_name is not None and item.has_rest))


def _size_of(dim: Dim) -> str | int | None:
    match dim:
        case Fixed(size):
            return size
        case Anything():
            return None
        case _:
            return str(dim)


def _names_of(dim: Dim) -> Iterator[str]:
    if isinstance(dim, Named):
        yield dim.name
    elif isinstance(dim, Arithmetic):
        yield from tree_names(dim.tree)
