"""Later changes: which launch may overwrite an element that an earlier launch has read.

A simulation is thousands of launches of a few kernels, which differ in a number: `x[t + 1, i]` is written from
`x[t, i]` for t = 0, 1, 2, ... Comparing every launch with every later one takes quadratic time. Here changes are filed
under the numbers that their indices are known to be, so that a read looks at changes of its own elements alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir import AffineIndex, DependenceQuery, PartialIndexMap, extents, never_alias
from ._indices import bind_index, invariant_without
from ._roles import Access, Roles

Values = Mapping[str, "int | str"]
"""A launch's scalar arguments: numbers, or names of its own for what is not known."""


@dataclass(frozen=True)
class _Change:
    access: Access
    changing: frozenset[str]
    by: Any


class LaterChanges:
    """Changes of one array. Launches are added the last first.

    Attributes:
        compared: how many pairs of a read and a change were compared; tests hold it.
    """

    def __init__(self) -> None:
        self._filed = PartialIndexMap()
        self._unseen: Any = None
        self._any: _Change | None = None
        self.compared = 0

    def add(self, roles: Roles, values: Values, by: Any) -> None:
        """The changes by a launch, which comes before all that were added; `by` is given back by `meeting`."""
        for access in roles.of("write", "add"):
            index = tuple(bind_index(part, values) for part in access.index)
            change = _Change(replace(access, index=index), roles.changing, by)
            key = (
                access.place,
                access.kind,
                *((tuple(sorted(part.terms.items())), part.constant, part.wide) for part in index),
            )
            self._filed.add(key, find_known_axes(index), change)
            self._any = change
            self._unseen = self._unseen or (change if roles.escapes else None)

    def meeting(self, roles: Roles, places: Collection[str], values: Values) -> tuple[Access, Access, Any] | None:
        """A read at one of `places`, a change that may be of the same element, and by whom; None without one."""
        reads = [access for access in roles.of("read") if access.place in places]
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
    """Numbers in an index by their axis: from the front 0, 1, ..., from the back -1, -2, ..., as far as parts are one
    axis each.
    """
    numbers: dict[int, int] = {}
    for parts, axes in ((index, range(len(index))), (index[::-1], range(-1, -len(index) - 1, -1))):
        for part, axis in zip(parts, axes, strict=True):
            if part.wide:
                break
            if part.number is not None:
                numbers[axis] = part.number
    return numbers
