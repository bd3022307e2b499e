"""The parts that a maximum or minimum of many parallel iterations is made of, for `atomic_max(y[k], v)`:

    atomic_max(winner[k], v)            # in every iteration: find
    if before[k] == winner[k]: ...      # for every k: what stood there before may have won
    if v == winner[k]: ...              # in every iteration: a candidate that won

What belongs in the place of the dots, the adjoint and the tangent say each for itself: they count who won, and share.

Engines compile with fast maths: worked out in another loop, `v` has other last bits. So a `v` that was calculated
(`Exact`) is not to be worked out again: it is kept by who finds the winner, or there is only one loop, in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...source.ir import nodes, walk
from .._algebra import cast, compared, constant
from .._names import Names

INTEGER = "i32"
Block: TypeAlias = tuple[nodes.Stmt, ...]
Index: TypeAlias = tuple[nodes.Expr, ...]
Change: TypeAlias = Callable[[Index, tuple[int, ...]], Sequence[nodes.Stmt]]
"""What happens to the number of an array at an index and entry."""


@dataclass(frozen=True)
class Extreme:
    """An array whose elements are maxima or minima, and the memory beside it.

    Attributes:
        array: the array.
        before: name of what holds the elements as they were before the task: the array itself, or a copy.
        winner: name of the array that holds what won.
        ties: name of the array that counts candidates that won.
        count_type: type of `ties`.
    """

    array: nodes.Array
    before: str
    winner: str
    ties: str
    count_type: str

    def load(self, name: str, index: Index, entry: tuple[int, ...]) -> nodes.Load:
        """An element of the array or of what lies beside it."""
        return nodes.Load(name, index, entry, self.count_type if name == self.ties else self.array.type)

    def stays(self, index: Index, entry: tuple[int, ...]) -> nodes.Expr:
        """Whether what stood there before won."""
        return compared("==", *(self.load(name, index, entry) for name in (self.before, self.winner)))

    def if_won(
        self,
        one: nodes.Atomic,
        names: Names,
        then: Callable[[Index], Sequence[nodes.Stmt]],
        value: nodes.Expr | None = None,
    ) -> list[nodes.Stmt]:
        """Statements for an atomic's candidate that won; `value` is where the candidate was kept."""
        first: list[nodes.Stmt] = []
        here: list[nodes.Expr] = []
        for place in one.index:
            if any(isinstance(part, nodes.Load) for part in walk.parts(place)):
                name = names.fresh(f"{one.array}_row", INTEGER)
                first.append(nodes.Assign(name, place, one.line))
                place = nodes.Local(name, INTEGER)
            here.append(place)
        index = tuple(here)
        candidate = cast(one.value if value is None else value, self.array.type)
        won = compared("==", candidate, self.load(self.winner, index, one.entry))
        return [*first, nodes.If(won, tuple(then(index)), (), one.line)]

    def over_all(self, names: Names, change: Change, line: int = 0) -> Block:
        """Something for every number of the array: a task of its own."""
        array = self.array
        rows = tuple(names.fresh(f"row_{axis}", INTEGER) for axis in range(array.rank))
        index = tuple(nodes.Local(name, INTEGER) for name in rows)
        entries = itertools.product(*map(range, array.element))
        body = tuple(statement for entry in entries for statement in change(index, entry))
        if not rows:
            return body
        bounds = tuple((constant(0, INTEGER), nodes.Size(array.name, axis)) for axis in range(array.rank))
        return (nodes.For(rows, bounds, body, is_parallel=True, line=line),)


def extremes_of(body: Sequence[nodes.Stmt], arrays: Collection[str]) -> frozenset[str]:
    """Of arrays, those of which statements take nothing but maxima, or nothing but minima."""
    loaded = {load.array for load in walk.loads(body)}
    uses: dict[str, set[str | None]] = {}
    for one in walk.stores(body):
        is_plain = isinstance(one, nodes.Atomic) and one.result is None
        uses.setdefault(one.array, set()).add(one.operator if isinstance(one, nodes.Atomic) and is_plain else None)
    found = (name for name, operators in uses.items() if operators in ({"max"}, {"min"}))
    return frozenset(name for name in found if name not in loaded and name in arrays)
