"""Interval analysis: the least and greatest value that a number can have, as far as the kernel's text bounds it.

Only what the text bounds has a range: constants, clamps, functions with a bounded image, comparisons that a branch has
asked. Whatever comes from memory or from an iteration before may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..ir import Operator, Type, nodes, operators, types


class Range(NamedTuple):
    """All numbers from `low` to `high`."""

    low: float = -math.inf
    high: float = math.inf

    def intersect(self, other: Range) -> Range:
        """Return the intersection of two ranges."""
        return Range(max(self.low, other.low), min(self.high, other.high))

    def join(self, other: Range) -> Range:
        """Return the least range that contains both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


EVERYTHING = Range()
MOST_EXACT = 2.0**53

_IMAGES: dict[str, Range] = {
    "sqrt": Range(0.0),
    "norm": Range(0.0),
    "abs": Range(0.0),
    "exp": Range(0.0),
    "sin": Range(-1.0, 1.0),
    "cos": Range(-1.0, 1.0),
    "tanh": Range(-1.0, 1.0),
}
_ORDER = ("<", "<=", ">", ">=")


class Ranges:
    """Ranges of expressions.

    Args:
        definitions: every expression that each local may be given; one that is not there may be anything.
        assumed: what is known besides, by local.
    """

    def __init__(
        self, definitions: Mapping[str, Sequence[nodes.Expr]], assumed: Mapping[str, Range] | None = None
    ) -> None:
        self._definitions = definitions
        self._assumed = dict(assumed or {})
        self._known: dict[str, Range] = {}

    def assuming(self, condition: nodes.Expr, *, holds: bool) -> Ranges:
        """Return the ranges where a condition holds, or where it does not."""
        assumed = dict(self._assumed)
        for local, bound in self._bounds(condition, holds):
            assumed[local] = assumed.get(local, EVERYTHING).intersect(bound)
        return Ranges(self._definitions, assumed)

    def get_assumed(self, local: str) -> Range:
        """Return the assumed range of a local, without what its definitions say."""
        return self._assumed.get(local, EVERYTHING)

    def _bounds(self, condition: nodes.Expr, holds: bool) -> list[tuple[str, Range]]:
        """Return the bounds of single locals that follow from a condition."""
        match condition:
            case nodes.Local(name) if len(self._definitions.get(name, ())) == 1:
                return self._bounds(self._definitions[name][0], holds)
            case nodes.Unary(Operator.NOT, value):
                return self._bounds(value, not holds)
            # `not (a and b)` and `a or b` bound neither side.
            case nodes.Binary(Operator.AND | Operator.OR as word, left, right) if holds == (word == "and"):
                return [*self._bounds(left, holds), *self._bounds(right, holds)]
            case nodes.Binary(operator, left, right) if operator in _ORDER and _share_a_scale(left.type, right.type):
                asked = operator if holds else operators.OPPOSITE[operator]
                sides = ((left, asked, right), (right, operators.SWAPPED[asked], left))
                return [
                    (one.name, self._side(word, self.of(other)))
                    for one, word, other in sides
                    if isinstance(one, nodes.Local)
                ]
        return []

    @staticmethod
    def _side(operator: Operator, other: Range) -> Range:
        # Ranges are closed: `x < 1` gives the range up to 1, which contains more numbers but no fewer.
        return Range(high=other.high) if operator in ("<", "<=") else Range(low=other.low)

    def of(self, expr: nodes.Expr) -> Range:
        """Return a range that contains all values that an expression can have."""
        match expr:
            case nodes.Const(value):
                return Range(float(value), float(value)) if math.isfinite(value) else EVERYTHING
            case nodes.Local(name):
                return self._of_local(name)
            case nodes.Size():
                return Range(0.0)
            case nodes.Select(_, then, otherwise):
                return self.of(then).join(self.of(otherwise))
            case nodes.Cast(value, kind) if not expr.keeps_bits:
                low, high = self.of(value)
                # Rounding to an integer moves a number by less than 1.
                return Range(low, high) if types.is_float(kind) else _unless_wrapped(Range(low - 1, high + 1), kind)
            case nodes.Unary(Operator.NEG, value, kind):
                low, high = self.of(value)
                return _unless_wrapped(Range(-high, -low), kind)
            case nodes.Unary(Operator.ABS, value, kind) if not types.is_float(kind):
                return _unless_wrapped(Range(0.0, max(map(abs, self.of(value)))), kind)
            case nodes.Unary(operator):
                return _IMAGES.get(operator, EVERYTHING)
            case nodes.Binary(Operator.MIN | Operator.MAX, left, right) if not _share_a_scale(left.type, right.type):
                return EVERYTHING
            case nodes.Binary(operator, left, right, kind) if operator in _RULES:
                return _unless_wrapped(_RULES[operator](self.of(left), self.of(right)), kind)
        return EVERYTHING

    def _of_local(self, name: str) -> Range:
        if name not in self._known:
            # Until it is computed: a local that is made of itself may be anything.
            self._known[name] = EVERYTHING
            ranges = [self.of(one) for one in self._definitions.get(name, ())]
            whole = EVERYTHING
            if ranges:
                whole = ranges[0]
                for one in ranges[1:]:
                    whole = whole.join(one)
            self._known[name] = whole.intersect(self._assumed.get(name, EVERYTHING))
        return self._known[name]


def _unless_wrapped(values: Range, kind: Type) -> Range:
    """Return a range of results of a type. Integers that may wrap around may be anything: `-x` of the least is `x`."""
    if types.is_float(kind):
        return values
    # Beyond 2^53, the ends themselves may have been rounded.
    is_exact = values.low >= -MOST_EXACT and values.high <= MOST_EXACT
    fits = is_exact and all(types.fits(end, kind) for end in (math.floor(values.low), math.ceil(values.high)))
    return values if fits else EVERYTHING


def _share_a_scale(one: Type, other: Type) -> bool:
    """Return True if numbers are compared as they are, not a negative one as the large one that it wraps to."""
    return types.is_float(one) or types.is_float(other) or (one in types.SIGNED) == (other in types.SIGNED)


def _product(one: Range, other: Range) -> Range:
    # 0 times an end that is infinite: the numbers themselves are finite, and their product with 0 is 0.
    ends = [0.0 if 0.0 in (a, b) else a * b for a in one for b in other]
    return Range(min(ends), max(ends))


_RULES: dict[str, Callable[[Range, Range], Range]] = {
    "+": lambda one, other: Range(one.low + other.low, one.high + other.high),
    "-": lambda one, other: Range(one.low - other.high, one.high - other.low),
    "*": _product,
    "min": lambda one, other: Range(min(one.low, other.low), min(one.high, other.high)),
    "max": lambda one, other: Range(max(one.low, other.low), max(one.high, other.high)),
}
