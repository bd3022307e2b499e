"""Arrays that a task reads and changes, no element of which is written after it was read: `x[t + 1, i]` from `x[t, i]`.

What is read then is what is there in the end, so the reverse needs no copy of such an array, and keeps nothing of what
is overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...source.ir import nodes
from ..analysis import Affine, affine, whole_definitions
from ._form import Branch, Loop, Step, step_definitions, steps_in

Pairs = Sequence[tuple[Affine, Affine]]
"""Two indices, axis by axis."""


@dataclass(frozen=True)
class _Access:
    """One use: its index, the loops around it, its place in the text."""

    array: str
    index: tuple[Affine, ...]
    loops: tuple[Loop, ...]
    order: int


def settled(steps: Sequence[Step], arrays: frozenset[str]) -> frozenset[str]:
    """Of arrays, those whose elements nothing writes after they were read.

    Args:
        steps: what one thread runs: the body of a parallel loop, or a serial task.
        arrays: no element of which another thread touches.
    """
    reading = _read(steps, arrays)
    raced = {one.array for one in steps_in(steps) if isinstance(one, nodes.Atomic)}
    found = set[str]()
    for name in arrays - raced:
        loads = [one for one in reading.loads if one.array == name]
        stores = [one for one in reading.stores if one.array == name]
        if all(_is_before(store, load) for load in loads for store in stores):
            found.add(name)
    return frozenset(found)


def never_meeting(steps: Sequence[Step], arrays: frozenset[str]) -> frozenset[str]:
    """Of arrays, those that no thread loads where any stores: `x[t, i - 1]` is no `x[t + 1, i]`.

    Args:
        steps: what one thread runs.
        arrays: any that it loads and stores.
    """
    reading = _read(steps, arrays)
    fetched = {one.array for one in steps_in(steps) if isinstance(one, nodes.Atomic) and one.result is not None}
    found = set[str]()
    for name in arrays - fetched:
        loads = [one for one in reading.loads if one.array == name]
        stores = [one for one in reading.stores if one.array == name]
        if all(_differ(_pairs(store, load)) for load in loads for store in stores):
            found.add(name)
    return frozenset(found)


def _read(steps: Sequence[Step], arrays: frozenset[str]) -> _Reading:
    reading = _Reading(whole_definitions(step_definitions(steps)), arrays)
    reading.block(steps, ())
    return reading


def _pairs(store: _Access, load: _Access) -> Pairs:
    return list(zip(store.index, load.index, strict=True))


def _differ(pairs: Pairs) -> bool:
    """Whether two indices differ on an axis, in whichever iterations."""
    return any(one.never_equals(two) for one, two in pairs)


def _is_before(store: _Access, load: _Access) -> bool:
    """Whether a store never writes what a load has read: it comes first, wherever both name one element."""
    pairs = _pairs(store, load)
    if _differ(pairs):
        return True
    for mine, theirs in zip(store.loops, load.loops, strict=False):
        if mine.number != theirs.number:
            break
        ahead = _ahead(mine, pairs)
        if ahead is None:
            return False
        if ahead:
            return True
    return store.order < load.order


def _ahead(loop: Loop, pairs: Pairs) -> bool | None:
    """Whether a store writes what only later iterations load; False: the same one; None: perhaps an earlier one."""
    if not loop.names:
        return None
    first, *rest = loop.names
    for one, two in pairs:
        distance = one.distance(two)
        if distance is not None and one.varying == {first: 1}:
            if distance:
                return True if distance > 0 else None
            return False if _same(rest, pairs) else None
    return None


def _same(names: Sequence[str], pairs: Pairs) -> bool:
    """Whether each of a loop's further variables alone moves one axis of both indices in the same way."""
    return all(any(one.moves_with(name) and one.distance(two) == 0 for one, two in pairs) for name in names)


class _Reading:
    """Collects loads and stores of arrays."""

    def __init__(self, definitions: Mapping[str, nodes.Expr], arrays: frozenset[str]) -> None:
        self.definitions = definitions
        self.arrays = arrays
        self.loads: list[_Access] = []
        self.stores: list[_Access] = []
        self.order = 0

    def block(self, steps: Sequence[Step], loops: tuple[Loop, ...]) -> None:
        for step in steps:
            self.order += 1
            match step:
                case nodes.Assign(value=nodes.Load() as load) if load.array in self.arrays:
                    self.loads.append(self.access(load, loops))
                case nodes.Store(array) if array in self.arrays:
                    self.stores.append(self.access(step, loops))
                case Branch():
                    self.block(step.body, loops)
                    self.block(step.orelse, loops)
                case Loop():
                    self.block(step.body, (*loops, step))
                case _:
                    pass

    def access(self, one: nodes.Load | nodes.Store, loops: tuple[Loop, ...]) -> _Access:
        index = tuple([affine(part, self.definitions) for part in one.index])
        return _Access(one.array, index, loops, self.order)
