"""Regular logs: overwritten values whose places follow from the loops around the stores, so that they need not be kept.

An update `x[i] = ...` of all elements is put back by a loop over the same `i`. What an iteration overwrites lies on the
tape in the order of the loops, one value after the other, and nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...analyses import affine, expand, is_invariant
from ...ir import ONE, ZERO, Names, Type, each_moves_an_axis, iteration_number, nodes, plus, times, types, walk
from .._slots import trips_of
from ._ssa import Access, BranchArm, Step, accesses, repeatable_definitions


@dataclass(frozen=True)
class LoggedStore:
    """A store that every iteration of the loops around it runs.

    Attributes:
        store: the store; its index is in terms of the loops' variables and of what is known outside of them.
        loops: the loops around it, the outermost first, with bounds that are known outside of all of them.
        place: the number of its value among those of an iteration of the logging loop.
    """

    store: nodes.Store
    loops: tuple[nodes.Loop, ...]
    place: nodes.Expr

    def undo(self, value: nodes.Expr, names: Names) -> nodes.Stmt:
        """Put the old values back; `value` is what the tape has at `place`."""
        renamed = {name: names.local(name, Type.I32) for loop in self.loops for name in loop.names}
        index = tuple(walk.substitute(one, renamed) for one in self.store.index)
        old = walk.substitute(value, renamed)
        statement: nodes.Stmt = nodes.Store(self.store.array, index, self.store.entry, old, self.store.line)
        for loop in reversed(self.loops):
            bounds = tuple((walk.substitute(a, renamed), walk.substitute(b, renamed)) for a, b in loop.bounds)
            # In the direction of the forward pass: no two iterations store to one element, so the order is free.
            statement = nodes.For(
                tuple(renamed[name].name for name in loop.names), bounds, (statement,), line=loop.line
            )
        return statement


@dataclass(frozen=True)
class RegularLog:
    """What each iteration of a loop overwrites of an array: its stores by number, and how many values that are."""

    stores: Mapping[int, LoggedStore]
    count: nodes.Expr


def find_regular_log(loop: nodes.Loop, array: str) -> RegularLog | None:
    """Return the log of an array in a loop if its places follow from the text, else None.

    Args:
        loop: the loop that logs.
        array: the array.
    """
    finding = _Finding(_definitions(loop.body), set(loop.names), frozenset(walk.find_defined(loop.body)))
    changes = (one for one in accesses(loop.body) if one.of.array == array and not isinstance(one.of, nodes.Load))
    if not all(map(finding.add, changes)):
        return None
    stores: dict[int, LoggedStore] = {}
    first: nodes.Expr = ZERO
    for one, loops in finding.stores:
        place = ZERO
        count: nodes.Expr = ONE
        for inner in loops:
            trips = trips_of(inner.bounds)
            place = plus(times(place, trips), iteration_number(inner.names, inner.bounds))
            count = times(count, trips)
        stores[one.number] = LoggedStore(one, loops, plus(first, place))
        first = plus(first, count)
    return RegularLog(stores, first)


def _definitions(body: Sequence[Step]) -> dict[str, nodes.Expr]:
    """Return the definitions of integer locals that have only one, unless it is read from memory."""
    single = repeatable_definitions(walk.statements(body), ()).items()
    return {name: value for name, value in single if not types.is_float(value.type) and not walk.reads_memory(value)}


def _are_apart(one: nodes.Store, other: nodes.Store) -> bool:
    """Return True if two stores in a loop are to different elements or entries, in whichever iterations."""
    if one.index == other.index and one.entry != other.entry:
        return True
    pairs = zip(one.index, other.index, strict=True)
    return any(affine(mine, {}).never_equals(affine(theirs, {}), is_invariant) for mine, theirs in pairs)


@dataclass
class _Finding:
    """Collects an array's stores, with the loops around each."""

    definitions: Mapping[str, nodes.Expr]
    outside: set[str]
    inside: frozenset[str]

    def __post_init__(self) -> None:
        self.stores: list[tuple[nodes.Store, tuple[nodes.Loop, ...]]] = []
        self.around = walk.locals_in([*self.definitions.values()]) - self.inside

    def add(self, change: Access) -> bool:
        """Add a change of the array; False where its elements do not follow from the loops around it alone."""
        loops = tuple(filter(None, map(self.loop, change.around)))
        return len(loops) == len(change.around) and isinstance(change.of, nodes.Store) and self.store(change.of, loops)

    def loop(self, around: nodes.Loop | BranchArm) -> nodes.Loop | None:
        """Return a loop with bounds in terms of what is known outside; None for a branch, and if it may end early."""
        # A store in a branch runs in some iterations only, and a loop that ends early leaves iterations out: how many
        # values there are is then known to the run alone.
        if isinstance(around, BranchArm) or not around.names or around.exit is not None:
            return None
        bounds = [tuple(self.expand_invariant(one, set()) for one in pair) for pair in around.bounds]
        if any(one is None for pair in bounds for one in pair):
            return None
        return replace(around, bounds=tuple((a, b) for a, b in bounds if a is not None and b is not None), body=())

    def expand_invariant(self, expr: nodes.Expr, known: set[str]) -> nodes.Expr | None:
        """Replace the locals in an expression by their definitions, until only loop-invariant names are left.

        Return None if it also depends on memory or on a local of the loop. The `known` loop variables may stay.
        """
        outside = (walk.locals_in([expr]) | self.around) - self.inside
        expanded = expand(expr, known | outside | self.outside, self.definitions)
        if expanded is None or walk.reads_memory(expanded):
            return None
        return expanded if walk.locals_in([expanded]).isdisjoint(self.inside - known) else None

    def store(self, store: nodes.Store, loops: tuple[nodes.Loop, ...]) -> bool:
        """Note a store. Return False if its elements are not determined by the loops' variables, or if two iterations
        may store to the same element.
        """
        names = [name for loop in loops for name in loop.names]
        index = [self.expand_invariant(one, set(names)) for one in store.index]
        if any(one is None for one in index):
            return False
        known = tuple(one for one in index if one is not None)
        # Of two values that one element had, the earlier must be put
        # back last, which a loop in the forward direction does not.
        if not each_moves_an_axis(names, [[affine(one, {}) for one in known]], is_invariant):
            return False
        for other, around in self.stores:
            # Two stores in one loop take turns, but are put back by a loop each, so they must not meet. Stores in
            # different loops ran one after the other, and are put back so, the last one first.
            shares_loop = bool(loops) and bool(around) and loops[0].number == around[0].number
            if shares_loop and not _are_apart(other, replace(store, index=known)):
                return False
        self.stores.append((replace(store, index=known), loops))
        return True
