"""Bound the trip counts of loops by a call's sizes and numbers, before anything is launched.

Bounds are computed as intervals, so that `range(i + 1)` inside `for i in range(n)` runs at
most n times. What depends on the content of an array has no bound here.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral
from types import SimpleNamespace
from typing import Any

from ..engines import compile_expression, public_name
from ..ir import Type, types
from ._definitions import definitions
from ._loops import get_iterable, range_bounds
from ._nodes import names_in, resolve_callee
from ._read import Source

Interval = tuple[float, float]
"""The minimum and maximum of a number. Both are of type `int` if it is certainly whole, otherwise both are floats."""
_CASTS = frozenset({"int", "float", "cast", *types.ALL})


class Bounds:
    """Intervals of a kernel's expressions of numbers.

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
            # Evaluated by Python: the list may be a global or an attribute, which `_constant` looks up.
            length = self._constant(ast.Call(ast.Name("len", ast.Load()), [counted], []))
            return None if length is None else int(length[0])
        count = 1
        for extent in map(self._extent, bounds):
            if extent is None:
                return None
            count *= max(0, int(extent[1] - extent[0]) + 1)
        return count

    def _extent(self, bounds: list[ast.expr]) -> Interval | None:
        """Return the first and last value of a loop variable, given the arguments of its `range`."""
        if len(bounds) > 2:
            return None
        begin = (0, 0) if len(bounds) == 1 else self.interval(bounds[0])
        end = self.interval(bounds[-1])
        # Rounded outwards, since arguments may be fractions: a bound that is too large costs memory, one that is too
        # small overflows the gradient stack (`_stacks`).
        return None if begin is None or end is None else (math.floor(begin[0]), math.ceil(end[1]) - 1)

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
            case ast.Call(args=[value]) if resolve_callee(node) == "static":
                return self.interval(value)
            case ast.Call(args=[value, *kinds]) if resolve_callee(node) in _CASTS:
                kind = self._type_name(kinds[0]) if kinds else resolve_callee(node)
                inner = self.interval(value)
                return None if inner is None else _cast(inner, kind)
            case ast.Call(args=arguments) if arguments and resolve_callee(node) in ("min", "max"):
                return self._extremum(min if resolve_callee(node) == "min" else max, arguments)
        return self._constant(node)

    def _type_name(self, node: ast.expr) -> str | None:
        """Return the name of a type that `cast` is given; None if it is unknown."""
        value = self.source.value(node)
        return value.__name__ if value in (int, float) else public_name(value)

    def _extremum(self, pick: Callable[[Iterable[float]], float], arguments: list[ast.expr]) -> Interval | None:
        intervals = [self.interval(argument) for argument in arguments]
        known = [one for one in intervals if one is not None]
        if len(known) < len(intervals):
            return None
        return _of_one_type(pick(low for low, _ in known), pick(high for _, high in known))

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
        return _of_one_type(min(low for low, _ in extents), max(high for _, high in extents)) if is_known else None

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
            number = int(value) if isinstance(value, Integral) else float(value)
            return (number, number) if math.isfinite(number) else None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # Not a number that Python knows before the launch. Callers report a loop that has no bound.
            return None


def _of_one_type(low: float, high: float) -> Interval:
    is_whole = isinstance(low, int) and isinstance(high, int)
    return (low, high) if is_whole else (float(low), float(high))


def _cast(inner: Interval, kind: str | None) -> Interval | None:
    """Return the interval of a number that is cast to a type; None if it may wrap around, or the type is unknown."""
    if kind == "float" or kind in types.FLOATS:
        return float(inner[0]), float(inner[1])
    whole = math.trunc(inner[0]), math.trunc(inner[1])
    if kind == "int":
        return whole
    return whole if kind in types.ALL and all(types.fits(end, Type(kind)) for end in whole) else None


def _combine_intervals(op: ast.operator, first: Interval, second: Interval) -> Interval | None:
    """Return the interval of `first op second`; None for operators without a rule."""
    if isinstance(op, ast.Add):
        return _of_one_type(first[0] + second[0], first[1] + second[1])
    if isinstance(op, ast.Sub):
        return _of_one_type(first[0] - second[1], first[1] - second[0])
    if isinstance(op, ast.Mult):
        ends = [one * two for one in first for two in second]
        return _of_one_type(min(ends), max(ends))
    # A divisor that may be 0 leaves the quotient without a bound, and a negative one makes remainders negative.
    if second[0] <= 0:
        return None
    if isinstance(op, ast.Mod):
        # Only a whole remainder stays one below the divisor: `7.5 % 2` is 1.5.
        is_whole = all(isinstance(end, int) for end in (*first, *second))
        return (0, second[1] - 1) if is_whole else (0.0, float(second[1]))
    if isinstance(op, ast.FloorDiv | ast.Div):
        ends = [one / two for one in first for two in second]
        outer = math.floor(min(ends)), math.ceil(max(ends))
        return outer if isinstance(op, ast.FloorDiv) else (float(outer[0]), float(outer[1]))
    return None
