"""What the forward pass keeps of loops, so that the backward pass need not run them forward again.

It keeps what a loop leaves: how often it ran, and the last values of what it hands on, one number of each for an
iteration of the parallel loop. It also keeps numbers of each of the loop's own iterations: what the iteration was
handed, where this cannot be computed backwards, and values of functions such as `exp`. Together these may take as much
memory as those arrays of the op that have a number for each such iteration.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ....ir import (
    ONE,
    Names,
    Operator,
    Type,
    cast,
    compare,
    constant,
    either,
    is_constant,
    iteration_number,
    minus,
    nodes,
    plus,
    restore,
    times,
    types,
    walk,
)
from ..._evaluate import extent
from .._plan import ResultRoom
from .._tapes import TapeSize

Block = list[nodes.Stmt]
MINUS_ONE = constant(-1, Type.I32)


@dataclass
class LoopResults:
    """Memory for what the forward pass keeps of loops.

    Attributes:
        names: names of the task.
        given: what the memory depends on.
        arrays: the memory, by local; one that counts how often a loop ran holds that it `ended` early too.
        entries: how many elements of it each parallel iteration has, by local, where that is not one.
        wholes: how many elements it has, by local, if they belong to places in segments.
    """

    names: Names
    given: ResultRoom
    arrays: dict[str, nodes.Array] = field(default_factory=dict)
    entries: dict[str, nodes.Expr] = field(default_factory=dict)
    wholes: dict[str, nodes.Size] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[TapeSize, ...]:
        """Return the sizes of the memory, from which it is allocated."""
        return tuple(self._size(local, one) for local, one in self.arrays.items())

    def _size(self, local: str, array: nodes.Array) -> TapeSize:
        whole = self.wholes.get(local)
        entries = self.entries.get(local, ONE) if whole is None else whole
        return TapeSize(((array.name, array.type, 1),), ("", entries), None, is_whole=whole is not None)

    def load(self, values: Sequence[str], trips: str | None, ended: Sequence[str]) -> Block:
        """Write statements that give locals the values that were kept.

        Args:
            values: locals.
            trips: the one that counts how often a loop ran.
            ended: those that say by which of its conditions it ended.
        """
        statements: Block = []
        # The sign of the count says whether the loop ended early: one array less to write and to read.
        if trips is not None and ended:
            kept, first = self._load(trips), nodes.Local(ended[0], Type.U1)
            word = self.names.local(f"{trips}_kept", Type.I32)
            statements.append(nodes.Assign(word.name, kept))
            statements.append(nodes.Assign(first.name, compare(Operator.LT, word, constant(0, Type.I32))))
            statements.append(nodes.Assign(trips, _flip_where(first, word)))
            trips, ended = None, ended[1:]
        locals_ = [*values, *ended] + ([] if trips is None else [trips])
        return [*statements, *(nodes.Assign(name, self._load(name)) for name in locals_)]

    def store(self, values: Sequence[str], trips: str | None, ended: Sequence[str]) -> Block:
        """Write statements that keep those locals that have memory. The arguments are those of `load`."""
        kept: dict[str, nodes.Expr] = {name: nodes.Local(name, self.names.types[name]) for name in (*values, *ended)}
        if trips is not None:
            count = nodes.Local(trips, Type.I32)
            kept[trips] = _flip_where(nodes.Local(ended[0], Type.U1), count) if ended else count
        # Memory is made by the first load, so what the reverse never loads is not kept.
        return [self._store(name, value) for name, value in kept.items() if name in self.arrays]

    # Of each iteration -------------------------------------------------------------------------

    def room(self, loop: nodes.Loop) -> int:
        """Return how many numbers may be kept of each iteration of a loop: as many as the op's arrays have."""
        if loop.number in self.given.segments:
            return _count_numbers(self.given.known, self.given.segments[loop.number])
        trips = self._trips(loop)
        return 0 if trips is None else _count_numbers(self.given.known, times(self.given.iterations, trips))

    def load_entries(self, loop: nodes.Loop, locals_: Sequence[str]) -> Block:
        """Write statements that give locals the values that they had in an iteration of a loop."""
        return [nodes.Assign(name, self._load(name, "was", self._entry(loop, name))) for name in locals_]

    def store_entries(self, loop: nodes.Loop, locals_: Sequence[str], renamed: Mapping[str, nodes.Expr]) -> Block:
        """Write statements that keep those locals of an iteration that have memory; they may be `renamed`."""
        kept = [(name, walk.substitute(self._entry(loop, name), renamed)) for name in locals_ if name in self.arrays]
        return [self._store(name, renamed[name], place) for name, place in kept]

    def _trips(self, loop: nodes.Loop) -> nodes.Expr | None:
        return extent(loop.bounds, self.given.definitions) if loop.names else None

    def _entry(self, loop: nodes.Loop, local: str) -> nodes.Expr:
        if loop.number in self.given.segments:
            self.wholes[local] = self.given.segments[loop.number]
            return nodes.Local(loop.names[0], Type.I32)
        trips = self._trips(loop)
        assert trips is not None
        self.entries[local] = trips
        row = self.given.place
        for first, end in loop.bounds:
            row = times(row, minus(end, first))
        return plus(row, iteration_number(loop.names, loop.bounds))

    def _load(self, local: str, word: str = "left", place: nodes.Expr | None = None) -> nodes.Expr:
        kind = self.names.types[local]
        if local not in self.arrays:
            name = self.names.reserve_shared(f"{word}_{self.names.root(local)}")
            self.arrays[local] = nodes.Array(name, types.keeping(kind), 1)
        array = self.arrays[local]
        return restore(nodes.Load(array.name, (self.given.place if place is None else place,), (), array.type), kind)

    def _store(self, local: str, value: nodes.Expr, place: nodes.Expr | None = None) -> nodes.Stmt:
        array = self.arrays[local]
        return nodes.Store(array.name, (self.given.place if place is None else place,), (), cast(value, array.type))


def _count_numbers(arrays: Iterable[nodes.Array], count: nodes.Expr) -> int:
    """Return how many numbers arrays have at least for each of `count` iterations, by the names of their sizes."""
    by_name = {one.name: one for one in arrays}
    factors = _factors(count, by_name)
    return 0 if factors is None else sum(_count_in(one, factors) for one in by_name.values())


def _count_in(array: nodes.Array, factors: Counter[str | int]) -> int:
    dims = Counter(_dims(array))
    if any(dims[one] < power for one, power in factors.items() if isinstance(one, str)):
        return 0
    given = math.prod(one for one in dims.elements() if isinstance(one, int)) * math.prod(array.element)
    return given // max(1, math.prod(one for one in factors.elements() if isinstance(one, int)))


def _dims(array: nodes.Array) -> list[str | int]:
    """Return sizes by axis; one without a name is called after its array."""
    return [f"{array.name}:{axis}" if dim is None else dim for axis, dim in enumerate(array.sizes)]


def _factors(expr: nodes.Expr, arrays: Mapping[str, nodes.Array]) -> Counter[str | int] | None:
    """Return the factors of a product of sizes that is an upper bound of `expr`; None if there is none."""
    match expr:
        case nodes.Const(value=value) if value >= 0:
            return Counter([int(value)])
        case nodes.Size(array=array, axis=axis) if array in arrays:
            return Counter([_dims(arrays[array])[axis]])
        case nodes.Binary(operator=Operator.MUL, left=left, right=right):
            one, other = _factors(left, arrays), _factors(right, arrays)
            return None if one is None or other is None else one + other
        case nodes.Binary(operator=Operator.MAX, left=left, right=right) if is_constant(right, 0):
            return _factors(left, arrays)
        # An upper bound will do: arrays with enough numbers for `n` iterations have enough for `n - 1`.
        case nodes.Binary(operator=Operator.SUB, left=left, right=nodes.Const(value=less)) if less >= 0:
            return _factors(left, arrays)
        case nodes.Binary(operator=Operator.ADD, left=left, right=nodes.Const(value=less)) if less <= 0:
            return _factors(left, arrays)
        case _:
            return None


def _flip_where(condition: nodes.Expr, count: nodes.Expr) -> nodes.Expr:
    """Return `-1 - count` where a condition holds, else the count.

    The sign then tells the truth value, also for a count of 0. Applied twice, it is the count again.
    """
    return either(condition, minus(MINUS_ONE, count), count)
