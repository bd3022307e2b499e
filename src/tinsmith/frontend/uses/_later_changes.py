"""Find the launches that may overwrite an element which an earlier launch has read.

A simulation is thousands of launches of a few kernels, which differ in a number: `x[t + 1, i]` is written from
`x[t, i]` for t = 0, 1, 2, ... Comparing every launch with every later one takes quadratic time. Here changes are stored
by the known numbers in their indices, so that a read is compared with changes of its own elements alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ir import AffineIndex, DependenceQuery, PartialIndexMap, extents, never_alias
from .._indices import bind_index, invariant_without
from ._roles import Access, Roles

Values = Mapping[str, "int | str"]
"""A launch's scalar arguments: numbers, or names of its own for unknown ones."""


@dataclass(frozen=True)
class _Change:
    access: Access
    changing: frozenset[str]
    by: Any


class LaterChanges:
    """Changes of one array. Launches are added in reverse order.

    Attributes:
        compared: how many pairs of a read and a change were compared, for tests of the cost.
    """

    def __init__(self) -> None:
        self._filed = PartialIndexMap()
        self._unseen: Any = None
        self._any: _Change | None = None
        self.compared = 0

    def add(self, roles: Roles, values: Values, by: Any) -> None:
        """Add the changes by a launch that runs before all that were added. `meeting` returns `by`."""
        for access in roles.of("write", "add"):
            index = tuple(bind_index(part, values) for part in access.index)
            change = _Change(replace(access, index=index), roles.changing, by)
            # Launches of one kernel repeat the changes that do not depend on their numbers: equal ones are stored
            # once.
            key = (
                access.place,
                access.kind,
                *((tuple(sorted(part.terms.items())), part.constant, part.wide) for part in index),
            )
            self._filed.add(key, find_known_axes(index), change)
            self._any = change
            self._unseen = self._unseen or (change if roles.escapes else None)

    def meeting(self, roles: Roles, places: Collection[str], values: Values) -> tuple[Access, Access, Any] | None:
        """Return a read at one of `places`, a later change that may be of its element, and its `by`; None without."""
        reads = [access for access in roles.of("read") if access.place in places]
        # An array whose uses cannot be followed may be changed, or read, at any index.
        hidden = self._any if roles.escapes else self._unseen
        if hidden is not None:
            return (reads or [hidden.access])[0], hidden.access, hidden.by
        for access in reads:
            index = tuple(bind_index(part, values) for part in access.index)
            read = replace(access, index=index)
            for change in self._filed.meeting(find_known_axes(index)):
                self.compared += 1
                is_invariant = invariant_without(roles.changing | change.changing)
                query = DependenceQuery((), None, is_invariant, extents(change.access, read))
                if not never_alias(change.access.index, index, query):
                    return read, change.access, change.by
        return None


def find_known_axes(index: Sequence[AffineIndex]) -> dict[int, int]:
    """Return the numbers in an index by axis, counted from the front, 0, 1, ..., and from the back, -1, -2, ...

    Parts that may be vectors end both counts.
    """
    numbers: dict[int, int] = {}
    for parts, axes in ((index, range(len(index))), (index[::-1], range(-1, -len(index) - 1, -1))):
        for part, axis in zip(parts, axes, strict=True):
            # A vector may index several axes, so the axis of what follows is not known.
            if part.wide:
                break
            if part.number is not None:
                numbers[axis] = part.number
    return numbers
