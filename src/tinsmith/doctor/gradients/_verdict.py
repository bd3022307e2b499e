"""Verdicts: classifies the three derivatives by one number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from ._differences import Slope


class Kind(Enum):
    """The kind of a disagreement."""

    RIGHT = "right"
    WRONG = "wrong"  # the op differs from oracle and differences, as far as they exist
    ALL_DIFFER = "all differ"
    CONVENTION = "convention"  # at a kink, or without a derivative, where several answers are valid
    AT_KINK = "at a kink"  # at a kink, and all three agree
    ORACLE = "oracle"  # only the oracle differs
    DIFFERENCES = "differences"  # only the differences differ


@dataclass(frozen=True)
class Tolerance:
    """The accepted difference of two derivatives: `rtol` times the larger one, plus `atol` times the scale of the
    input's derivatives.
    """

    rtol: float
    atol: float

    def close(self, one: float, two: float, scale: float, more: float = 0.0) -> bool:
        """Return True if two derivatives differ by at most the tolerance plus `more`, or if neither is finite."""
        if not (math.isfinite(one) and math.isfinite(two)):
            return not math.isfinite(one) and not math.isfinite(two)
        return abs(one - two) <= self.atol * scale + self.rtol * max(abs(one), abs(two)) + more


@dataclass(frozen=True)
class Point:
    """The three derivatives by one number. The oracle's is None if it was left out."""

    op: float
    oracle: float | None
    slope: Slope


def judge_point(point: Point, exact: Tolerance, rough: Tolerance, scale: float) -> Kind:
    """Compare three derivatives with respect to one number (op's, oracle's, differences'), and return which one is
    wrong, if any.

    Args:
        point: the three derivatives.
        exact: the tolerance between op and oracle.
        rough: the tolerance between either and differences.
        scale: the size of the input's derivatives.
    """
    agrees = point.oracle is None or exact.close(point.op, point.oracle, scale)
    slope = point.slope
    if slope.kind != "smooth":
        return _judge_at_edge(point, rough, scale, agrees=agrees)
    near = rough.close(point.op, slope.central, scale, 2 * slope.noise)
    if agrees and point.oracle is not None:
        return Kind.RIGHT if near else Kind.DIFFERENCES
    if point.oracle is None:
        return Kind.RIGHT if near else Kind.WRONG
    is_oracle_near = rough.close(point.oracle, slope.central, scale, 2 * slope.noise)
    if near and is_oracle_near:  # a small error: the one closer to the differences counts as right
        near = abs(point.op - slope.central) < abs(point.oracle - slope.central)
    return Kind.ORACLE if near else Kind.WRONG if is_oracle_near else Kind.ALL_DIFFER


def _judge_at_edge(point: Point, rough: Tolerance, scale: float, *, agrees: bool) -> Kind:
    """Classify a point at which the function has no derivative: any number between the one-sided slopes is accepted."""
    slope = point.slope
    if agrees and point.oracle is not None:
        return Kind.AT_KINK
    if not math.isfinite(point.op):
        return Kind.WRONG if point.oracle is not None else Kind.CONVENTION
    if slope.kind != "kink":  # unbounded slopes: an op that differs from the oracle is wrong
        return Kind.CONVENTION if point.oracle is None else Kind.WRONG
    margin = rough.atol * scale + rough.rtol * max(abs(slope.least), abs(slope.greatest)) + 2 * slope.noise
    is_between = slope.least - margin <= point.op <= slope.greatest + margin
    return Kind.CONVENTION if is_between else Kind.WRONG
