"""The parts of a parsed spec: dims, items (arrays of the kernel), and the spec itself.

`_parse` makes them from text, and `_solve` computes the sizes of a call. All are frozen, compare by value, and can be
pickled; `str` returns the text that they were parsed from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from .._lazy import lazy
from ._arithmetic import Tree, list_tree_names

UPDATED = "inout"
"""The word before an input that the kernel changes in place."""

PROMISES = {
    "unique": "all of its numbers are different",
    "segments": "its rows are [start, count], and no two of the segments share a place",
    "ranges": "its rows are [start, end), and no two of the ranges share a place",
    "offsets": "none of its numbers is below 0 or below the one before it",
}
"""Words before an integer input that say what its numbers are. They hold for each sample of a batch separately."""


@dataclass(frozen=True)
class Named:
    """A dim with a name: equal names have equal sizes."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Fixed:
    """A dim whose size is a number in the spec."""

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

A size is a number, a text that stands for one size in the whole op, or None if it is unknown.
"""


class Layout(NamedTuple):
    """How an input's shape is split: `*b` first, then its plain dims with `...` somewhere among them.

    A plain dim is a name, a size, or None for `_`, in the form in which `_solve` compares it.
    """

    has_batch: bool
    has_rest: bool
    before_rest: int  # the number of plain dims before `...`
    plain: DimSizes


@dataclass(frozen=True)
class Item:
    """One array of the kernel: its name, its dims, and its dtype if the spec fixes it.

    If `is_updated`, it is an input that the kernel changes in place. `promise` is a word of `PROMISES`, or "".
    """

    name: str
    dims: tuple[Dim, ...]
    dtype: str | None = None
    column: int = field(default=0, compare=False)  # its position in the spec's text, for carets
    is_updated: bool = False
    promise: str = ""
    label: str = field(default="", compare=False)  # how the spec writes a member of a struct: `state.q` for `state_q`

    def __str__(self) -> str:
        word = f"{UPDATED} " if self.is_updated else f"{self.promise} " if self.promise else ""
        return f"{word}{self.written_name}{self.brackets}" + (f": {self.dtype}" if self.dtype else "")

    @property
    def written_name(self) -> str:
        """Return the name as the spec writes it: `state.q` for the member `state_q` of a struct."""
        return self.label or self.name

    @lazy
    def brackets(self) -> str:
        """Return the dims as written in a spec: `[n, 3]`."""
        return f"[{', '.join(map(str, self.dims))}]"

    @lazy
    def batch_name(self) -> str | None:
        """Return the `b` of its `*b`, or None."""
        return self.dims[0].name if self.dims and isinstance(self.dims[0], Batch) else None

    @lazy
    def has_rest(self) -> bool:
        """Return True if one of its dims is `...`."""
        return Rest() in self.dims

    @lazy
    def names(self) -> tuple[str, ...]:
        """Return all dim names that it mentions, also in arithmetic."""
        return tuple(dict.fromkeys(name for dim in self.dims for name in _names_of(dim)))

    @lazy
    def sizes(self) -> DimSizes:
        """Return the sizes of the dims that a kernel sees; () with `...`."""
        return () if self.has_rest else self.layout.plain

    @lazy
    def layout(self) -> Layout:
        """Return the dims of an input in the form that `_solve` uses."""
        seen = [dim for dim in self.dims if not isinstance(dim, Batch)]
        before = seen.index(Rest()) if self.has_rest else len(seen)
        plain = tuple(_size_of(dim) for dim in seen if not isinstance(dim, Rest))
        return Layout(self.batch_name is not None, self.has_rest, before, plain)


@dataclass(frozen=True)
class Spec:
    """The inputs, outputs and scratch of an op."""

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
        """Return the arrays that the op allocates: outputs, then scratch."""
        return self.outputs + self.scratch

    @lazy
    def updated_inputs(self) -> tuple[Item, ...]:
        """Return the inputs that the kernel changes in place."""
        return tuple(item for item in self.inputs if item.is_updated)

    @lazy
    def batch_name(self) -> str | None:
        """Return the `b` of `*b`, or None if the op has no batch."""
        return next((item.batch_name for item in self.items if item.batch_name), None)

    @lazy
    def input_dims(self) -> tuple[str, ...]:
        """Return the names of dims whose sizes inputs determine."""
        return tuple(dict.fromkeys(name for item in self.inputs for name in item.names))

    @lazy
    def free_dims(self) -> tuple[str, ...]:
        """Return the names of dims whose sizes no input determines: integer scalars of the kernel, or keywords of the
        call.
        """
        names = dict.fromkeys(name for item in self.allocations for name in item.names)
        return tuple(name for name in names if name not in self.input_dims)

    @lazy
    def solving_order(self) -> tuple[Item, ...]:
        """Return the inputs in the order in which `_solve` matches them.

        Inputs with both `*b` and `...` come last: other inputs tell where one ends and the other begins.
        """
        return tuple(sorted(self.inputs, key=lambda item: item.batch_name is not None and item.has_rest))


def make_functional(spec: Spec, taken: Callable[[], Collection[str]]) -> tuple[Spec, Mapping[str, str]]:
    """Return the functional form of a spec, without `inout`, and the names of the new values by those of the old ones.

    The input keeps its name and holds the old value; the first outputs are the new values, `state_after`.

    Args:
        spec: any spec.
        taken: returns the names that already have a meaning in the kernels.

    Example:
        >>> from tinsmith.spec import parse
        >>> found, names = make_functional(parse("x[n], inout state[n] -> y[n]"), list)
        >>> str(found), names
        ('x[n], state[n] -> state_after[n], y[n]', {'state': 'state_after'})
    """
    if not spec.updated_inputs:
        return spec, {}
    known = {*taken(), *(item.name for item in spec.items)}
    names: dict[str, str] = {}
    for item in spec.updated_inputs:
        name = f"{item.name}_after"
        while name in known:
            name += "_"
        known.add(name)
        names[item.name] = name
    inputs = tuple(replace(item, is_updated=False) for item in spec.inputs)
    after = tuple(replace(item, name=names[item.name], label="", is_updated=False) for item in spec.updated_inputs)
    return Spec(spec.text, spec.scratch_text, inputs, after + spec.outputs, spec.scratch), names


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
        yield from list_tree_names(dim.tree)
