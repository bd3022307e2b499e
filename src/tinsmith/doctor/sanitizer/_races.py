"""Races: finds iterations of a parallel loop that access the same element, at least one with a plain write.

For each element and kind of access, two iterations are stored: any later iteration differs from at least one of them.
Atomics of one kind do not conflict; an atomic and a plain access do.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...engines import How, Number
from ...frontend import Columns
from ...ir import types
from ...linter import Finding, Severity
from ._log import Log
from ._position import ExecutionPosition, Place, Spot

_KINDS = {"sub": "add"}  # additions and subtractions commute


class _Touch(NamedTuple):
    """An access of an iteration to an element: "read", "write", or the operation of an atomic.

    `value` is the value that a write stores; None if the iteration writes different values.
    """

    kind: str
    spot: Spot
    value: Number | None


class Races:
    """Observes all accesses of parallel loops."""

    def __init__(self, here: ExecutionPosition, log: Log, columns: Columns) -> None:
        self._here = here
        self._log = log
        self._columns = columns
        self._touched: dict[tuple[str, int], dict[str, list[_Touch]]] = {}
        self._last_writers: dict[tuple[str, int], Place] = {}

    def begin(self) -> None:
        """Begin another loop, whose accesses cannot conflict with those of the last one."""
        self._touched.clear()
        self._last_writers.clear()

    def add(self, how: How, array: str, position: int, line: int, operator: str, value: Number | None) -> None:
        """Record an access of the current iteration, and report a race if it conflicts with an earlier one."""
        kind = _KINDS.get(operator, operator) or how
        touch = _Touch(kind, self._here.spot(line), value if kind == "write" else None)
        kinds = self._touched.setdefault((array, position), {})
        if kind == "write":
            self._last_writers[array, position] = touch.spot.place
        elif kind == "read" and self._last_writers.get((array, position)) == touch.spot.place:
            return  # a conflict with this read is also one with this iteration's own write
        other = _find_conflict(touch, kinds)
        if other is not None:
            self._report_race(touch, other, array, position)
        same = kinds.setdefault(kind, [])
        for at, one in enumerate(same) if kind == "write" else ():
            if one.spot.place == touch.spot.place and not _is_same(one.value, touch.value):
                same[at] = one._replace(value=None)
        if len(same) < 2 and all(one.spot.place != touch.spot.place for one in same):
            same.append(touch)

    def _report_race(self, touch: _Touch, other: _Touch, array: str, position: int) -> None:
        here = self._here
        writer, partner = sorted([touch, other], key=lambda one: (_RANK.get(one.kind, 1), one.spot.line))
        is_harmless = writer.kind == partner.kind == "write" and _is_same(writer.value, partner.value)
        if is_harmless and not types.is_float(here.kernel.arrays[array].type):
            return  # all iterations set the same flag
        severity: Severity = "warning" if is_harmless else "error"

        def words() -> Finding:
            element, name = here.element(array, position), here.find_label(array)
            first, second = (
                _DID.get(one.kind, f"changed by an atomic {one.kind}")
                + f" on line {one.spot.line}{here.within(one.spot)}"
                for one in (writer, partner)
            )
            what = f"{element} is {first} and {second} of one parallel loop: "
            what += _THEN["same" if is_harmless else partner.kind if partner.kind in _THEN else "atomic"]
            remedy = _REMEDIES.get(partner.kind, _REMEDIES["atomic"])
            place = self._columns.element(here.kernel.path, writer.spot.line, name, is_read=False)
            return Finding("TS601", severity, here.kernel.path, *place, what, remedy)

        self._log.note("TS601", severity, here.kernel.path, writer.spot.line, array, words)


_RANK = {"write": 0, "read": 2}
_DID = {"read": "read", "write": "written", "add": "added to"}
_THEN = {
    "read": "whether the old or the new value is read depends on the order of the iterations",
    "write": "which value stays depends on the order of the iterations",
    "atomic": "what is left depends on the order of the iterations",
    "same": "both write the same value, so it stays that; a gradient through it would be counted again",
}
_REMEDIES = {
    "read": "read from one array and write to another, or run the loop in order: `loop_config(serialize=True)`",
    "write": "add up with `+=`, which is atomic, or give each iteration an element of its own",
    "atomic": "change the element in one way only in that loop: all by the same atomic",
}


def _find_conflict(touch: _Touch, kinds: dict[str, list[_Touch]]) -> _Touch | None:
    """Return a conflicting access of another iteration, preferably a plain one; None if there is none."""
    for kind in sorted(kinds, key=["read", "write"].__contains__, reverse=True):
        if kind == touch.kind and kind != "write":
            continue
        for one in kinds[kind]:
            if one.spot.place != touch.spot.place:
                return one
    return None


def _is_same(left: Number | None, right: Number | None) -> bool:
    """Return True if two values are equal, and neither requires a gradient."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return not (left.requires_grad or right.requires_grad) and left.item() == right.item()
    return isinstance(left, int) and left == right
