"""Bounds checks: a kernel notes the first index outside its array, and uses the array's first element instead of it.

    y[i] = x[k]          ->          if not (0 <= k and k < x.shape[0]):
                                         count = atomic add record[0], 1
                                         if count == 0:
                                             record[1] = 0; record[2] = k; record[3] = x.shape[0]
                                     (the same for y[i], with record[1] = 1)
                                     y[inside(i)] = x[inside(k)], where inside(k) = k if it is inside, else 0

Before each statement stands a test of every index that it uses; an index on a side of a selection or of `and` that is
not chosen is moved inside too, but not noted. A division of integers by zero, or of the least integer by -1, ends the
process: it is noted too, and divides by 1 instead. Notes go into an array of the kernel, four integers:

    record[0]  how many were wrong                    record[2]  the first index, or divisor
    record[1]  which of the kernel's sites it was     record[3]  the size along its axis, or the dividend
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..ir import (
    TRUE,
    ZERO,
    AtomicOperator,
    Operator,
    Type,
    both,
    compare,
    is_not_zero,
    nodes,
    number,
    operators,
    opposite,
    types,
    walk,
)

RECORD = "_outside"
ENTRIES = 4
"""Integers of the record."""
_COUNT = "_outside_count"


class Site(NamedTuple):
    """An index of an array in the source: what the source calls the array, the axis, and the line.

    A division of integers has no array.
    """

    array: str
    axis: int
    line: int

    @property
    def is_division(self) -> bool:
        return not self.array


class _Index(NamedTuple):
    array: str
    axis: int
    value: nodes.Expr
    condition: nodes.Expr


class _Division(NamedTuple):
    left: nodes.Expr
    right: nodes.Expr
    condition: nodes.Expr


def insert_bounds_checks(kernel: nodes.Kernel) -> tuple[nodes.Kernel, tuple[Site, ...]]:
    """Return a kernel with the array `RECORD`, and the sites whose numbers the record holds."""
    writer = _Writer(kernel)
    body = writer.block(kernel.body)
    record = nodes.Array(RECORD, Type.I32, 1, label=RECORD)
    arrays = {**kernel.arrays, RECORD: record}
    return replace(kernel, arrays=arrays, locals={**kernel.locals, _COUNT: Type.I32}, body=body), tuple(writer.sites)


class _Writer:
    def __init__(self, kernel: nodes.Kernel) -> None:
        self.kernel = kernel
        self.sites: list[Site] = []

    def block(self, body: nodes.Block) -> nodes.Block:
        return tuple(new for stmt in body for new in self._statement(stmt))

    def _statement(self, stmt: nodes.Stmt) -> Iterator[nodes.Stmt]:
        # `k[i]` is tested before `x[k[i]]`, whose own test reads `k` at a clamped index: the record names the cause.
        for one in self._indices(stmt):
            yield self._test(one, stmt.line) if isinstance(one, _Index) else self._test_division(one, stmt.line)
        stmt = walk.with_expressions(stmt, self._clamp_indices)
        match stmt:
            case nodes.Store() | nodes.Atomic():
                yield replace(stmt, index=self._inside(stmt.array, stmt.index))
            case _:
                yield walk.with_bodies(stmt, self.block)

    def _indices(self, stmt: nodes.Stmt) -> Iterator[_Index | _Division]:
        """Yield every index that a statement uses itself, and every division of integers."""
        for expr in walk.expressions(stmt):
            yield from self._of(expr, TRUE)
        if isinstance(stmt, nodes.Store | nodes.Atomic):
            yield from self._of_access(stmt.array, stmt.index, TRUE)

    def _of(self, expr: nodes.Expr, condition: nodes.Expr) -> Iterator[_Index | _Division]:
        # Engines evaluate both sides of a selection. An index on the side that is not chosen is no fault of the source:
        # it is noted only where its side counts, and clamped anyway.
        match expr:
            case nodes.Select(chosen, then, otherwise):
                yield from self._of(chosen, condition)
                yield from self._of(then, both(condition, _truth(chosen)))
                yield from self._of(otherwise, both(condition, opposite(_truth(chosen))))
            case nodes.Binary(Operator.AND | Operator.OR, left, right):
                yield from self._of(left, condition)
                reached = _truth(left) if expr.operator == "and" else opposite(_truth(left))
                yield from self._of(right, both(condition, reached))
            case _:
                for part in walk.operands(expr):
                    yield from self._of(part, condition)
                if isinstance(expr, nodes.Load):
                    yield from self._of_access(expr.array, expr.index, condition)
                elif isinstance(expr, nodes.Binary) and _may_end_process(expr):
                    yield _Division(expr.left, expr.right, condition)

    def _of_access(self, array: str, index: tuple[nodes.Expr, ...], condition: nodes.Expr) -> Iterator[_Index]:
        # Cells have no axes, so no index.
        if array not in self.kernel.cells:
            yield from (_Index(array, axis, value, condition) for axis, value in enumerate(index))

    def _test(self, one: _Index, line: int) -> nodes.Stmt:
        """Write the statement that notes an index if it is outside, the first one with its value."""
        self.sites.append(Site(self.kernel.arrays[one.array].label or one.array, one.axis, line))
        value = self._clamp_indices(one.value)
        outside = both(self._clamp_indices(one.condition), opposite(self._is_inside(one.array, one.axis, value)))
        return self._note(outside, nodes.Cast(value, Type.I32), nodes.Size(one.array, one.axis), line)

    def _test_division(self, one: _Division, line: int) -> nodes.Stmt:
        """Write the statement that notes a division if it would end the process, the first one with its operands."""
        self.sites.append(Site("", 0, line))
        left, right = self._clamp_indices(one.left), self._clamp_indices(one.right)
        is_wrong = both(self._clamp_indices(one.condition), _ends_process(left, right))
        return self._note(is_wrong, nodes.Cast(right, Type.I32), nodes.Cast(left, Type.I32), line)

    def _note(self, outside: nodes.Expr, first: nodes.Expr, second: nodes.Expr, line: int) -> nodes.Stmt:
        """Write the statement that counts a fault at the last site, and stores the first one's details."""
        notes = (number(len(self.sites) - 1), first, second)
        stores = tuple(_store(place, note, line) for place, note in enumerate(notes, 1))
        # Parallel iterations may all be wrong: the one that raised the count from 0 alone stores, so that the three
        # numbers belong together.
        add = nodes.Atomic(AtomicOperator.ADD, RECORD, (ZERO,), (), number(1), _COUNT, line)
        is_first = compare(Operator.EQ, nodes.Local(_COUNT, Type.I32), ZERO)
        return nodes.If(outside, (add, nodes.If(is_first, stores, (), line)), (), line)

    def _clamp_indices(self, expr: nodes.Expr) -> nodes.Expr:
        """Return an expression whose indices are all inside, and whose divisions do not end the process."""
        expr = walk.rebuild(expr, self._clamp_indices)
        if isinstance(expr, nodes.Binary) and _may_end_process(expr):
            kind = expr.right.type
            one = nodes.Const(1, kind)
            return replace(expr, right=nodes.Select(_ends_process(expr.left, expr.right), one, expr.right, kind))
        return replace(expr, index=self._inside(expr.array, expr.index)) if isinstance(expr, nodes.Load) else expr

    def _inside(self, array: str, index: tuple[nodes.Expr, ...]) -> tuple[nodes.Expr, ...]:
        """Return an index whose parts are replaced by the first one of their axis where they are outside."""
        if array in self.kernel.cells:
            return index
        return tuple(
            nodes.Select(
                self._is_inside(array, axis, one), one, nodes.Const(self._start(array, axis), one.type), one.type
            )
            for axis, one in enumerate(index)
        )

    def _start(self, array: str, axis: int) -> int:
        # Fields may begin at another index than 0, `place(table, offset=-2)`.
        offset = self.kernel.arrays[array].offset
        return offset[axis] if offset else 0

    def _is_inside(self, array: str, axis: int, value: nodes.Expr) -> nodes.Expr:
        start, end = self._start(array, axis), nodes.Size(array, axis)
        shifted = nodes.Binary(Operator.SUB, value, number(start), value.type) if start else value
        first = compare(Operator.LE, nodes.Const(0, shifted.type), shifted)
        return nodes.Binary(Operator.AND, first, compare(Operator.LT, shifted, end), Type.U1)


def _may_end_process(expr: nodes.Binary) -> bool:
    """Return True if an operation divides integers, by a number that is not known to be harmless."""
    if expr.operator not in operators.DIVISIONS or types.is_float(expr.type):
        return False
    return not isinstance(expr.right, nodes.Const) or expr.right.value in (0, -1)


def _ends_process(left: nodes.Expr, right: nodes.Expr) -> nodes.Expr:
    """Return the condition that a division is by 0, or of the least integer by -1: its quotient is out of range."""
    by_zero = compare(Operator.EQ, right, nodes.Const(0, right.type))
    if left.type not in types.SIGNED or right.type not in types.SIGNED:
        return by_zero
    # The least integer is its own negative, and the only one besides 0.
    is_least = both(compare(Operator.EQ, left, nodes.Unary(Operator.NEG, left, left.type)), is_not_zero(left))
    by_minus_one = both(compare(Operator.EQ, right, nodes.Const(-1, right.type)), is_least)
    return nodes.Binary(Operator.OR, by_zero, by_minus_one, Type.U1)


def _store(place: int, value: nodes.Expr, line: int) -> nodes.Stmt:
    return nodes.Store(RECORD, (number(place),), (), value, line)


def _truth(expr: nodes.Expr) -> nodes.Expr:
    return expr if expr.type == Type.U1 else nodes.Cast(expr, Type.U1)
