"""Tangents of atomic maxima and minima: those of the candidates that won, evenly where several did.

Beside such an array lies a count, `ties`: how many candidates equal the element, beyond the first one. In
code that runs in order the tangent is a running mean. In a parallel loop nobody knows the winner before all iterations
are through: the loop runs twice, and in the second run each iteration whose value won adds its tangent.

Whose value won is told by its bits. Engines compile with fast maths, so that one expression has other last bits in
another loop, and even a comparison may be rearranged: measured with Taichi 1.7.4 and Quadrants 1.3.3, two
winners of three were lost by `==` in another loop. So both runs are the same loop, which finds nothing in the first
run, as no number has the bits that `goal` begins with. Only candidates that are loaded or chosen are told so; a loop
with calculated ones runs in order (`_kernel.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...source.ir import nodes, walk
from .._algebra import cast, compared, constant, either, minus, over, plus, times
from .._names import Names

INTEGER = "i32"
ONE = constant(1, INTEGER)
Change: TypeAlias = Callable[[tuple[nodes.Expr, ...], tuple[int, ...]], list[nodes.Stmt]]
"""What happens to the number of an array at an index and entry."""


@dataclass(frozen=True)
class Extreme:
    """An array whose elements are maxima or minima, and what lies beside it.

    Attributes:
        array: the array.
        tangent: its companion's name.
        ties: name of the count.
        before: name of a copy from before a parallel loop.
        goal: name of the bits of what won in it.
    """

    array: nodes.Array
    tangent: str
    ties: str
    before: str
    goal: str

    @property
    def bits(self) -> str:
        """The integers that are as wide as the array's numbers."""
        return "i" + self.array.type[1:]

    def bits_of(self, number: nodes.Expr) -> nodes.Expr:
        """The bits of a number, of both zeros the same; it costs nothing."""
        is_zero = compared("==", number, constant(0, number.type))
        return either(is_zero, constant(0, self.bits), nodes.Cast(number, self.bits, keeps_bits=True))

    def load(self, name: str, index: tuple[nodes.Expr, ...], entry: tuple[int, ...]) -> nodes.Load:
        """An element of the array or of what lies beside it."""
        kind = {self.ties: INTEGER, self.goal: self.bits}.get(name, self.array.type)
        return nodes.Load(name, index, entry, kind)


def in_order(extreme: Extreme, atomic: nodes.Atomic, moved: nodes.Expr, names: Names) -> tuple[nodes.Stmt, ...]:
    """What goes before an atomic that nobody else interferes with; its value and tangent cost nothing."""
    index, entry, line = atomic.index, atomic.entry, atomic.line
    old = extreme.load(atomic.array, index, entry)
    tangent, ties = (extreme.load(name, index, entry) for name in (extreme.tangent, extreme.ties))
    count = names.local(extreme.ties, INTEGER)
    number = cast(nodes.Binary("+", count, ONE, INTEGER), extreme.array.type)
    mean = plus(tangent, over(minus(moved, tangent), number))
    won = (
        nodes.Store(extreme.tangent, index, entry, moved, line),
        nodes.Store(extreme.ties, index, entry, constant(0, INTEGER), line),
    )
    tied = (
        nodes.Assign(count.name, plus(ties, ONE), line),
        nodes.Store(extreme.tangent, index, entry, mean, line),
        nodes.Store(extreme.ties, index, entry, count, line),
    )
    is_tied = nodes.If(compared("==", atomic.value, old), tied, (), line)
    beats = ">" if atomic.operator == "max" else "<"
    return (nodes.If(compared(beats, atomic.value, old), won, (is_tied,), line),)


def of_winner(extreme: Extreme, atomic: nodes.Atomic, moved: nodes.Expr) -> tuple[nodes.Stmt, ...]:
    """What stands for an atomic in a parallel loop; its value and tangent cost nothing."""
    index, entry, line = atomic.index, atomic.entry, atomic.line
    won = compared("==", extreme.bits_of(atomic.value), extreme.load(extreme.goal, index, entry))
    add = (
        nodes.Atomic("add", extreme.tangent, index, entry, moved, None, line),
        nodes.Atomic("add", extreme.ties, index, entry, ONE, None, line),
    )
    return (atomic, nodes.If(won, add, (), line))


def kept(extreme: Extreme, names: Names, line: int) -> tuple[nodes.Stmt, ...]:
    """Before a parallel loop: a copy of every element, and nothing to be found."""

    def copied(index: tuple[nodes.Expr, ...], entry: tuple[int, ...]) -> list[nodes.Stmt]:
        return [
            nodes.Store(extreme.before, index, entry, extreme.load(extreme.array.name, index, entry), line),
            nodes.Store(extreme.goal, index, entry, constant(-1, extreme.bits), line),
        ]

    return _over_all(extreme, names, line, copied)


def settled(extreme: Extreme, names: Names, line: int) -> tuple[nodes.Stmt, ...]:
    """Between both runs: what stood there before may have won too. Tangents are sums now, `ties` all candidates."""

    def changed(index: tuple[nodes.Expr, ...], entry: tuple[int, ...]) -> list[nodes.Stmt]:
        now, before = (extreme.load(name, index, entry) for name in (extreme.array.name, extreme.before))
        tangent, ties = (extreme.load(name, index, entry) for name in (extreme.tangent, extreme.ties))
        count = names.local(extreme.ties, INTEGER)
        total = times(tangent, cast(count, tangent.type))
        stays = (
            nodes.Assign(count.name, plus(ties, ONE), line),
            nodes.Store(extreme.tangent, index, entry, total, line),
            nodes.Store(extreme.ties, index, entry, count, line),
        )
        goes = (
            nodes.Store(extreme.tangent, index, entry, constant(0, tangent.type), line),
            nodes.Store(extreme.ties, index, entry, constant(0, INTEGER), line),
        )
        value = names.local(extreme.array.name, now.type)
        return [
            nodes.Assign(value.name, now, line),
            nodes.Store(extreme.goal, index, entry, extreme.bits_of(value), line),
            nodes.If(compared("==", value, before), stays, goes, line),
        ]

    return _over_all(extreme, names, line, changed)


def shared(extreme: Extreme, names: Names, line: int) -> tuple[nodes.Stmt, ...]:
    """At last: means from sums. Where no candidate was found again, which must not be, the tangent is no number."""

    def divided(index: tuple[nodes.Expr, ...], entry: tuple[int, ...]) -> list[nodes.Stmt]:
        tangent, ties = (extreme.load(name, index, entry) for name in (extreme.tangent, extreme.ties))
        mean = over(tangent, cast(ties, tangent.type))
        return [
            nodes.Store(extreme.tangent, index, entry, mean, line),
            nodes.Store(extreme.ties, index, entry, minus(ties, ONE), line),
        ]

    return _over_all(extreme, names, line, divided)


def sliced(body: Sequence[nodes.Stmt], arrays: frozenset[str]) -> tuple[nodes.Stmt, ...]:
    """A loop's body without what it does to other arrays than these."""
    return tuple(_filter(body, lambda one: isinstance(one, nodes.Atomic) and (one.array in arrays or bool(one.result))))


def without(body: Sequence[nodes.Stmt], arrays: frozenset[str]) -> tuple[nodes.Stmt, ...]:
    """A loop's body without what it does to these arrays."""
    return tuple(_filter(body, lambda one: one.array not in arrays))


def _filter(body: Sequence[nodes.Stmt], is_kept: Callable[[nodes.Store | nodes.Atomic], bool]) -> Iterator[nodes.Stmt]:
    """Statements without the changes of memory that are not kept."""
    for one in body:
        match one:
            case nodes.Store() | nodes.Atomic() if not is_kept(one):
                continue
            case nodes.If():
                yield replace(one, body=tuple(_filter(one.body, is_kept)), orelse=tuple(_filter(one.orelse, is_kept)))
            case nodes.For() | nodes.While():
                yield replace(one, body=tuple(_filter(one.body, is_kept)))
            case _:
                yield one


def _over_all(extreme: Extreme, names: Names, line: int, change: Change) -> tuple[nodes.Stmt, ...]:
    """Something for every number of an array: a task of its own."""
    array = extreme.array
    loop_names = tuple(names.fresh(f"i{axis}") for axis in range(array.rank))
    index = tuple(nodes.Local(name, INTEGER) for name in loop_names)
    entries = itertools.product(*map(range, array.element))
    body = tuple(statement for entry in entries for statement in change(index, entry))
    if not array.rank:
        return body
    bounds = tuple((constant(0, INTEGER), nodes.Size(array.name, axis)) for axis in range(array.rank))
    return (nodes.For(loop_names, bounds, body, is_parallel=True, line=line),)


def extremes_in(body: Sequence[nodes.Stmt], arrays: Collection[str]) -> list[nodes.Atomic]:
    """Every maximum and minimum that statements take of elements of these arrays."""
    atomics = [one for one in walk.stores(body) if isinstance(one, nodes.Atomic)]
    return [one for one in atomics if one.operator in ("min", "max") and one.array in arrays]
