"""Verdict: compares the three derivatives of one number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from ._differences import Slope


class Kind(Enum):
    """The kind of a disagreement."""

    RIGHT = "right"
    WRONG = "wrong"  # what oracle and differences say, as far as there are, the op does not
    ALL_DIFFER = "all differ"
    CONVENTION = "convention"  # a kink, or no derivative: one of many answers was chosen
    AT_KINK = "at a kink"  # the same, and all agree
    ORACLE = "oracle"  # alone against two
    DIFFERENCES = "differences"  # alone against two


@dataclass(frozen=True)
class Tolerance:
    """How far apart two derivatives may be: `rtol` of the greater one, and `atol` times the scale of the input's."""

    rtol: float
    atol: float

    def close(self, one: float, two: float, scale: float, more: float = 0.0) -> bool:
        """Whether two are near enough; two that are both not finite are."""
        if not (math.isfinite(one) and math.isfinite(two)):
            return not math.isfinite(one) and not math.isfinite(two)
        return abs(one - two) <= self.atol * scale + self.rtol * max(abs(one), abs(two)) + more


@dataclass(frozen=True)
class Point:
    """The three derivatives by one number; None where one is not available."""

    op: float
    oracle: float | None
    slope: Slope | None


def judge_point(point: Point, exact: Tolerance, rough: Tolerance, scale: float) -> Kind:
    """Decide which derivative of one number is wrong.

    Args:
        point: the three.
        exact: how near the op must be to the oracle.
        rough: how near both must be to differences.
        scale: size of the input's derivatives.
    """
    agrees = point.oracle is None or exact.close(point.op, point.oracle, scale)
    slope = point.slope
    if slope is None:
        return Kind.RIGHT if agrees and math.isfinite(point.op) else Kind.WRONG if not agrees else Kind.CONVENTION
    if slope.kind != "smooth":
        return _at_an_edge(point, slope, rough, scale, agrees=agrees)
    near = rough.close(point.op, slope.central, scale, 2 * slope.noise)
    if agrees and point.oracle is not None:
        return Kind.RIGHT if near else Kind.DIFFERENCES
    if point.oracle is None:
        return Kind.RIGHT if near else Kind.WRONG
    is_oracle_near = rough.close(point.oracle, slope.central, scale, 2 * slope.noise)
    if near and is_oracle_near:  # a small error: the one that is nearer is right
        near = abs(point.op - slope.central) < abs(point.oracle - slope.central)
    return Kind.ORACLE if near else Kind.WRONG if is_oracle_near else Kind.ALL_DIFFER


def _at_an_edge(point: Point, slope: Slope, rough: Tolerance, scale: float, *, agrees: bool) -> Kind:
    """Where the function has no derivative, whatever lies between its slopes will do."""
    if agrees and point.oracle is not None:
        return Kind.AT_KINK
    if not math.isfinite(point.op):
        return Kind.WRONG if point.oracle is not None else Kind.CONVENTION
    if slope.kind != "kink":  # slopes without bound: who has the oracle against him is wrong
        return Kind.CONVENTION if point.oracle is None else Kind.WRONG
    margin = rough.atol * scale + rough.rtol * max(abs(slope.least), abs(slope.greatest)) + 2 * slope.noise
    is_between = slope.least - margin <= point.op <= slope.greatest + margin
    return Kind.CONVENTION if is_between else Kind.WRONG
