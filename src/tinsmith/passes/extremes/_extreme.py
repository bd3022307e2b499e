"""An array whose elements are maxima or minima, and the memory that lies beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...ir import Names, Operator, Type, compare, constant, nodes, walk
from ..strips import at_line

INTEGER = Type.I32
Index: TypeAlias = tuple[nodes.Expr, ...]
Entry: TypeAlias = tuple[int, ...]
Change: TypeAlias = Callable[[Index, Entry], Sequence[nodes.Stmt]]
"""Returns the statements for the number of an array at an index and entry."""


@dataclass(frozen=True)
class Beside:
    """An array of a task's own, with the sizes of one of the kernel's: `like`."""

    array: nodes.Array
    like: str


@dataclass(frozen=True)
class Extreme:
    """An array whose elements are maxima or minima.

    Attributes:
        array: the array.
        ties: name of the array that counts candidates that are equal, in whole numbers.
        winner: name of the array that holds the greatest or least candidate; "" where a task in order needs none.
    """

    array: nodes.Array
    ties: str
    winner: str = ""

    @property
    def beside(self) -> list[Beside]:
        """The helper arrays of this array: the counts of ties and the winning values. They have no derivative."""
        name = self.array.name
        memory = [copy_of(self.array, self.ties, INTEGER)]
        return [Beside(one, name) for one in [*memory, *([copy_of(self.array, self.winner)] if self.winner else [])]]

    def load(self, name: str, index: Index, entry: Entry) -> nodes.Load:
        """Return a load of an element of the array, or of one that lies beside it."""
        return nodes.Load(name, index, entry, INTEGER if name == self.ties else self.array.type)

    def stays(self, index: Index, entry: Entry) -> nodes.Expr:
        """Return the condition that the array's value before the task is the maximum or minimum."""
        return compare(Operator.EQ, *(self.load(name, index, entry) for name in (self.array.name, self.winner)))


def copy_of(array: nodes.Array, name: str, kind: str = "") -> nodes.Array:
    """Return the declaration of a temporary array with the shape of another array and without a gradient."""
    return replace(array, name=name, type=kind or array.type, label="", is_differentiable=False)


def over_elements(array: nodes.Array, names: Names, change: Change, line: int) -> nodes.Block:
    """Return a task that runs the statements of `change` for every number of an array."""
    rows = tuple(names.fresh(f"row_{axis}", INTEGER) for axis in range(array.rank))
    index = tuple(nodes.Local(name, INTEGER) for name in rows)
    entries = itertools.product(*map(range, array.element))
    body = at_line([statement for entry in entries for statement in change(index, entry)], line)
    if not rows:
        return body
    bounds = tuple((constant(0, INTEGER), nodes.Size(array.name, axis)) for axis in range(array.rank))
    return (nodes.For(rows, bounds, body, is_parallel=True, line=line),)


def extremes_in(body: Sequence[nodes.Stmt], arrays: Collection[str]) -> list[nodes.Atomic]:
    """Return every maximum and minimum that statements take of elements of these arrays."""
    atomics = (one for one in walk.stores(body) if isinstance(one, nodes.Atomic))
    return [one for one in atomics if one.operator in ("min", "max") and one.array in arrays]


def extremes_of(body: Sequence[nodes.Stmt], arrays: Collection[str]) -> frozenset[str]:
    """Return the arrays that statements use for atomic maxima only, or for atomic minima only."""
    # One that is read meanwhile is none of them: a search changes it when all candidates are through, not at each.
    loaded = walk.find_loaded(body)
    uses: dict[str, set[str | None]] = {}
    for one in walk.stores(body):
        is_plain = isinstance(one, nodes.Atomic) and one.result is None
        uses.setdefault(one.array, set()).add(one.operator if isinstance(one, nodes.Atomic) and is_plain else None)
    candidates = (name for name, operators in uses.items() if operators in ({"max"}, {"min"}))
    return frozenset(name for name in candidates if name not in loaded and name in arrays)
