"""Arrays that a task reads and changes, no element of which is written after it was read: `x[t + 1, i]` from `x[t, i]`.

What is read then is what is there in the end, so the reverse needs no copy of such an array, and keeps nothing of what
is overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...source.ir import nodes
from ._form import Branch, Loop, Step, steps_in, whole_numbers

_STEADY = "@"
"""Marks what is the same for every iteration, and no local's name."""


@dataclass(frozen=True)
class _Access:
    """One use: its index as (variable, offset) an axis, the loops around it, its place in the text."""

    array: str
    index: tuple[tuple[str, int] | None, ...]
    loops: tuple[Loop, ...]
    order: int


def settled(steps: Sequence[Step], arrays: frozenset[str]) -> frozenset[str]:
    """Of arrays, those whose elements nothing writes after they were read.

    Args:
        steps: what one thread runs: the body of a parallel loop, or a serial task.
        arrays: no element of which another thread touches.
    """
    reading = _read(steps)
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
    reading = _read(steps)
    fetched = {one.array for one in steps_in(steps) if isinstance(one, nodes.Atomic) and one.result is not None}
    found = set[str]()
    for name in arrays - fetched:
        loads = [one for one in reading.loads if one.array == name]
        stores = [one for one in reading.stores if one.array == name]
        if all(_differ(zip(store.index, load.index, strict=True)) for load in loads for store in stores):
            found.add(name)
    return frozenset(found)


def _read(steps: Sequence[Step]) -> _Reading:
    reading = _Reading(whole_numbers(steps))
    reading.block(steps, ())
    return reading


def _differ(pairs: Iterable[tuple[tuple[str, int] | None, tuple[str, int] | None]]) -> bool:
    """Whether two indices differ on an axis that is the same in every iteration: a number, or an argument and one."""
    return any(
        one is not None and two is not None and one[0] == two[0] and one[0].startswith(_STEADY) and one[1] != two[1]
        for one, two in pairs
    )


def _is_before(store: _Access, load: _Access) -> bool:
    """Whether a store never writes what a load has read: it comes first, wherever both name one element."""
    pairs = list(zip(store.index, load.index, strict=True))
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


def _ahead(loop: Loop, pairs: Sequence[tuple[tuple[str, int] | None, tuple[str, int] | None]]) -> bool | None:
    """Whether a store writes what only later iterations load; False: the same one; None: perhaps an earlier one."""
    if not loop.names:
        return None
    first, *rest = loop.names
    for one, two in pairs:
        if one is not None and two is not None and one[0] == two[0] == first:
            if one[1] != two[1]:
                return True if one[1] > two[1] else None
            return False if _same(rest, pairs) else None
    return None


def _same(names: Sequence[str], pairs: Sequence[tuple[tuple[str, int] | None, tuple[str, int] | None]]) -> bool:
    """Whether each of a loop's further variables stands alone at one place of both indices."""
    return all(any(one == two == (name, 0) for one, two in pairs) for name in names)


class _Reading:
    """Collects loads and stores."""

    def __init__(self, definitions: Mapping[str, nodes.Expr]) -> None:
        self.definitions = definitions
        self.loads: list[_Access] = []
        self.stores: list[_Access] = []
        self.order = 0

    def block(self, steps: Sequence[Step], loops: tuple[Loop, ...]) -> None:
        for step in steps:
            self.order += 1
            match step:
                case nodes.Assign() if isinstance(step.value, nodes.Load):
                    self.loads.append(self.access(step.value, loops))
                case nodes.Store():
                    self.stores.append(self.access(step, loops))
                case Branch():
                    self.block(step.body, loops)
                    self.block(step.orelse, loops)
                case Loop():
                    self.block(step.body, (*loops, step))
                case _:
                    pass

    def access(self, one: nodes.Load | nodes.Store, loops: tuple[Loop, ...]) -> _Access:
        return _Access(one.array, tuple([self.place(part) for part in one.index]), loops, self.order)

    def place(self, expr: nodes.Expr) -> tuple[str, int] | None:
        """An index as a variable and an offset. `_STEADY` stands before an argument, and alone for no variable."""
        match expr:
            case nodes.Const() if expr.type == "i32":
                return _STEADY, int(expr.value)
            case nodes.Argument(name, "i32", ()):
                return f"{_STEADY}{name}", 0
            case nodes.Local(name, "i32") if name in self.definitions:
                return self.place(self.definitions[name])
            case nodes.Local():
                return expr.name, 0
            case nodes.Binary("+" | "-", left, nodes.Const(value)):
                inner = self.place(left)
                sign = 1 if expr.operator == "+" else -1
                return None if inner is None else (inner[0], inner[1] + sign * int(value))
            case nodes.Binary("+", nodes.Const(value), right):
                inner = self.place(right)
                return None if inner is None else (inner[0], inner[1] + int(value))
            case _:
                return None
