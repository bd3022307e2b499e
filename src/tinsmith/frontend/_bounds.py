"""Bound the trip counts of loops by a call's sizes and numbers, before anything is launched.

Bounds are computed as intervals, so that `range(i + 1)` inside `for i in range(n)` runs at
most n times. What depends on the content of an array has no bound here.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from ..engines import compile_expression
from ._definitions import definitions
from ._loops import get_iterable, range_bounds
from ._nodes import names_in, resolve_callee
from ._read import Source

Interval = tuple[float, float]
_SAME = frozenset({"int", "float", "cast", "static", "i32", "i64", "u32", "f32", "f64"})


class Bounds:
    """Intervals of a kernel's integer expressions.

    Args:
        source: the kernel.
        shapes: of its arrays, in this call.
        values: its scalar and template arguments, as far as they are known.
    """

    def __init__(self, source: Source, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> None:
        self.source = source
        self._shapes = shapes
        self._known: dict[str, Any] = {name: SimpleNamespace(shape=shape) for name, shape in shapes.items()} | dict(
            values
        )
        self._single, self._local = definitions(source.tree)
        # Names whose interval is being computed: `for i in range(i + 1)` would recurse without end.
        self._busy: set[str] = set()

    def trips(self, loop: ast.For | ast.While) -> int | None:
        """Return an upper bound of a loop's trip count; None if there is none."""
        if not (isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)):
            return None
        counted = get_iterable(loop)
        bounds = range_bounds(counted)
        if not bounds:
            return self._length(counted)
        count = 1
        for extent in map(self._extent, bounds):
            if extent is None:
                return None
            # Rounded outwards, since arguments may be fractions: a bound that is too large costs memory, one that is
            # too small overflows the gradient stack (`_stacks`).
            count *= max(0, math.ceil(extent[1]) - math.floor(extent[0]) + 1)
        return count

    def _length(self, node: ast.expr) -> int | None:
        """Return the length of a Python list that a static loop runs over; None if it is unknown."""
        # Evaluated by Python: the list may be a global or an attribute, which `_constant` looks up.
        length = self._constant(ast.Call(ast.Name("len", ast.Load()), [node], []))
        return None if length is None else int(length[0])

    def _extent(self, bounds: list[ast.expr]) -> Interval | None:
        """Return the first and last value of a loop variable, given the arguments of its `range`."""
        if len(bounds) > 2:
            return None
        begin = (0.0, 0.0) if len(bounds) == 1 else self.interval(bounds[0])
        end = self.interval(bounds[-1])
        return None if begin is None or end is None else (begin[0], end[1] - 1)

    def interval(self, node: ast.expr) -> Interval | None:
        """Return the minimum and maximum of an expression; None if they are unknown."""
        match node:
            case ast.Name(id=name) if name in self._local:
                return self._local_interval(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.interval(operand)
                return None if inner is None else (-inner[1], -inner[0])
            case ast.BinOp(left=left, op=op, right=right):
                first, second = self.interval(left), self.interval(right)
                return None if first is None or second is None else _combine_intervals(op, first, second)
            case ast.Call(args=arguments) if arguments and resolve_callee(node) in ("min", "max", *_SAME):
                return self._call(resolve_callee(node), arguments)
        return self._constant(node)

    def _call(self, name: str, arguments: list[ast.expr]) -> Interval | None:
        if name in _SAME:
            return self.interval(arguments[0])
        intervals = [self.interval(argument) for argument in arguments]
        known = [one for one in intervals if one is not None]
        if len(known) < len(intervals):
            return None
        pick = min if name == "min" else max
        return pick(low for low, _ in known), pick(high for _, high in known)

    def _local_interval(self, name: str) -> Interval | None:
        """Return the interval of a local: over all loops that it is a variable of, and its only assignment."""
        if name in self._busy:
            return None
        self._busy.add(name)
        loops = [extent for loop in self._loops(name) for extent in [self._variable(loop, name)]]
        values = [self.interval(self._single[name])] if name in self._single else []
        self._busy.discard(name)
        extents = [one for one in (*loops, *values) if one is not None]
        # The interval has to hold for every definition, so one that is unknown makes the local unknown.
        is_known = extents and len(extents) == len(loops) + len(values) and (loops or values)
        return (min(low for low, _ in extents), max(high for _, high in extents)) if is_known else None

    def _loops(self, name: str) -> Iterator[ast.For]:
        for node in self.source.nodes:
            if isinstance(node, ast.For) and name in names_in(node.target):
                yield node

    def _variable(self, loop: ast.For, name: str) -> Interval | None:
        """Return the interval of one variable of a loop; None if it is unknown."""
        targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        place = next((k for k, t in enumerate(targets) if isinstance(t, ast.Name) and t.id == name), None)
        counted = get_iterable(loop)
        # Empty for what is not a `range` or `ndrange`: a loop over an array has the array's sizes as bounds.
        extents: list[Interval | None] = [self._extent(bounds) for bounds in range_bounds(counted)]
        if isinstance(counted, ast.Name) and counted.id in self._shapes:
            extents = [(0, size - 1) for size in self._shapes[counted.id]]
        return extents[place] if place is not None and len(extents) >= len(targets) else None

    def _constant(self, node: ast.expr) -> Interval | None:
        """Evaluate an expression of sizes, arguments and Python values; None if it uses a local or is not a number."""
        names = names_in(node)
        # A local may have the name of a global or argument, whose value must not be taken for it.
        if names & self._local:
            return None
        try:
            scope = {name: self._known[name] if name in self._known else self.source.lookup(name) for name in names}
            value = eval(compile_expression(node, "<bound>"), {}, scope)
            return (float(value), float(value))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # Not a number that Python knows before the launch. Callers report a loop that has no bound.
            return None


def _combine_intervals(op: ast.operator, first: Interval, second: Interval) -> Interval | None:
    """Return the interval of `first op second`; None for operators without a rule."""
    if isinstance(op, ast.Add):
        return first[0] + second[0], first[1] + second[1]
    if isinstance(op, ast.Sub):
        return first[0] - second[1], first[1] - second[0]
    if isinstance(op, ast.Mult):
        ends = [one * two for one in first for two in second]
        return min(ends), max(ends)
    # A divisor that may be 0 leaves the quotient without a bound, and a negative one makes remainders negative.
    if second[0] <= 0:
        return None
    if isinstance(op, ast.Mod):
        return 0, second[1] - 1
    if isinstance(op, ast.FloorDiv | ast.Div):
        ends = [one / two for one in first for two in second]
        return math.floor(min(ends)), math.ceil(max(ends))
    return None
