"""Bounds checks: a kernel notes the first index outside its array, and uses the array's first element in its place.

Before each statement stands a test of every index that it uses; an index on a side of a selection or of `and` that is
not chosen is moved inside too, but not noted. Notes go into an array of the kernel, four integers:

    record[0]  how many indices were outside          record[2]  the first one
    record[1]  which of the kernel's sites it was     record[3]  the size along its axis
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..source.ir import nodes, walk
from ._algebra import TRUE, both, opposite

RECORD = "_outside"
ENTRIES = 4
"""Integers of the record."""
_COUNT = "_outside_count"


class Site(NamedTuple):
    """An index of an array in the source: what the source calls the array, the axis, and the line."""

    array: str
    axis: int
    line: int


class _Index(NamedTuple):
    array: str
    axis: int
    value: nodes.Expr
    condition: nodes.Expr


def insert_bounds_checks(kernel: nodes.Kernel) -> tuple[nodes.Kernel, tuple[Site, ...]]:
    """A kernel with the array `RECORD`, and the sites that the record counts."""
    writer = _Writer(kernel)
    body = writer.block(kernel.body)
    record = nodes.Array(RECORD, "i32", 1, label=RECORD)
    arrays = {**kernel.arrays, RECORD: record}
    return replace(kernel, arrays=arrays, locals={**kernel.locals, _COUNT: "i32"}, body=body), tuple(writer.sites)


class _Writer:
    def __init__(self, kernel: nodes.Kernel) -> None:
        self.kernel = kernel
        self.sites: list[Site] = []

    def block(self, body: nodes.Block) -> nodes.Block:
        return tuple(new for stmt in body for new in self._statement(stmt))

    def _statement(self, stmt: nodes.Stmt) -> Iterator[nodes.Stmt]:
        for one in self._indices(stmt):
            yield self._test(one, stmt.line)
        stmt = walk.with_expressions(stmt, self._clamp_indices)
        match stmt:
            case nodes.Store() | nodes.Atomic():
                yield replace(stmt, index=self._inside(stmt.array, stmt.index))
            case _:
                yield walk.with_bodies(stmt, self.block)

    def _indices(self, stmt: nodes.Stmt) -> Iterator[_Index]:
        """Every index that a statement uses itself."""
        for expr in walk.expressions(stmt):
            yield from self._of(expr, TRUE)
        if isinstance(stmt, nodes.Store | nodes.Atomic):
            yield from self._of_access(stmt.array, stmt.index, TRUE)

    def _of(self, expr: nodes.Expr, condition: nodes.Expr) -> Iterator[_Index]:
        match expr:
            case nodes.Select(chosen, then, otherwise):
                yield from self._of(chosen, condition)
                yield from self._of(then, both(condition, _truth(chosen)))
                yield from self._of(otherwise, both(condition, opposite(_truth(chosen))))
            case nodes.Binary("and" | "or", left, right):
                yield from self._of(left, condition)
                reached = _truth(left) if expr.operator == "and" else opposite(_truth(left))
                yield from self._of(right, both(condition, reached))
            case _:
                for part in walk.operands(expr):
                    yield from self._of(part, condition)
                if isinstance(expr, nodes.Load):
                    yield from self._of_access(expr.array, expr.index, condition)

    def _of_access(self, array: str, index: tuple[nodes.Expr, ...], condition: nodes.Expr) -> Iterator[_Index]:
        if array not in self.kernel.cells:
            yield from (_Index(array, axis, value, condition) for axis, value in enumerate(index))

    def _test(self, one: _Index, line: int) -> nodes.Stmt:
        """Note an index that is outside, the first one with its value."""
        self.sites.append(Site(self.kernel.arrays[one.array].label or one.array, one.axis, line))
        value = self._clamp_indices(one.value)
        outside = both(self._clamp_indices(one.condition), opposite(self._is_inside(one.array, one.axis, value)))
        notes = (nodes.Const(len(self.sites) - 1, "i32"), nodes.Cast(value, "i32"), nodes.Size(one.array, one.axis))
        stores = tuple(_store(place, note, line) for place, note in enumerate(notes, 1))
        add = nodes.Atomic("add", RECORD, (_ZERO,), (), nodes.Const(1, "i32"), _COUNT, line)
        is_first = nodes.Binary("==", nodes.Local(_COUNT, "i32"), _ZERO, "u1")
        return nodes.If(outside, (add, nodes.If(is_first, stores, (), line)), (), line)

    def _clamp_indices(self, expr: nodes.Expr) -> nodes.Expr:
        """An expression whose indices are all inside."""
        expr = walk.rebuild(expr, self._clamp_indices)
        return replace(expr, index=self._inside(expr.array, expr.index)) if isinstance(expr, nodes.Load) else expr

    def _inside(self, array: str, index: tuple[nodes.Expr, ...]) -> tuple[nodes.Expr, ...]:
        """The index where it is inside, else 0."""
        if array in self.kernel.cells:
            return index
        return tuple(
            nodes.Select(
                self._is_inside(array, axis, one), one, nodes.Const(self._start(array, axis), one.type), one.type
            )
            for axis, one in enumerate(index)
        )

    def _start(self, array: str, axis: int) -> int:
        offset = self.kernel.arrays[array].offset
        return offset[axis] if offset else 0

    def _is_inside(self, array: str, axis: int, value: nodes.Expr) -> nodes.Expr:
        start, end = self._start(array, axis), nodes.Size(array, axis)
        shifted = nodes.Binary("-", value, nodes.Const(start, "i32"), value.type) if start else value
        first = nodes.Binary("<=", nodes.Const(0, shifted.type), shifted, "u1")
        return nodes.Binary("and", first, nodes.Binary("<", shifted, end, "u1"), "u1")


_ZERO = nodes.Const(0, "i32")


def _store(place: int, value: nodes.Expr, line: int) -> nodes.Stmt:
    return nodes.Store(RECORD, (nodes.Const(place, "i32"),), (), value, line)


def _truth(expr: nodes.Expr) -> nodes.Expr:
    return expr if expr.type == "u1" else nodes.Cast(expr, "u1")
