"""Bound how often an iteration runs some of its statements, by an expression that is known before the launch.

    for i in 0 .. n:                       S runs at most  max(n, 0) * max(n - 1, 0)  times
        for j in 0 .. i:             ->
            S

Bounds that depend on data have no such expression.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..analyses import affine, definitions, expand, single_definitions
from ..ir import ONE, ZERO, Type, constant, minus, nodes, plus, times, walk
from ._evaluate import can_evaluate, extent

Ranges = Mapping[str, tuple[nodes.Expr, nodes.Expr]]
"""The least and the largest value of loop variables."""


def most_runs(
    body: Sequence[nodes.Stmt], wanted: Collection[int], around: nodes.For | None = None
) -> nodes.Expr | None:
    """Return how often the statements whose numbers are `wanted` run at most; None if only a run can tell.

    Bounds of loops inside may be made of the variables of those around them, and of that loop whose body it is.
    """
    known = single_definitions(definitions(body))
    return _most(body, wanted, known, {} if around is None else _ranges(around, {}, known))


def _most(
    body: Sequence[nodes.Stmt], wanted: Collection[int], definitions: Mapping[str, nodes.Expr], ranges: Ranges
) -> nodes.Expr | None:
    total: nodes.Expr = ZERO
    for one in body:
        if one.number in wanted:
            total = plus(total, ONE)
        # Both sides of a branch are counted: which one runs may depend on data.
        inner = _ranges(one, ranges, definitions) if isinstance(one, nodes.For) else ranges
        for part in walk.bodies(one):
            inside = _most(part, wanted, definitions, inner)
            if isinstance(one, nodes.For | nodes.While) and inside != ZERO:
                trips = _trips(one, definitions, ranges)
                inside = None if inside is None or trips is None else times(trips, inside)
            if inside is None:
                return None
            total = plus(total, inside)
    return total


def _trips(loop: nodes.For | nodes.While, definitions: Mapping[str, nodes.Expr], ranges: Ranges) -> nodes.Expr | None:
    if isinstance(loop, nodes.While):
        return None
    bounds = [tuple(expand(one, {*ranges}, definitions) for one in pair) for pair in loop.bounds]
    return extent([(a, b) if _are_known(a, b) else (ZERO, _widest(a, b, ranges)) for a, b in bounds])


def _are_known(*bounds: nodes.Expr | None) -> bool:
    return all(one is not None and can_evaluate(one) for one in bounds)


def _widest(first: nodes.Expr | None, end: nodes.Expr | None, ranges: Ranges) -> nodes.Expr | None:
    """Return the largest distance of two bounds over all values of the variables around them; None if unknown."""
    return None if first is None or end is None else _extremum(minus(end, first), ranges, largest=True)


def _ranges(loop: nodes.For, around: Ranges, definitions: Mapping[str, nodes.Expr]) -> Ranges:
    """Return `around` and the values of a loop's own variables, if they are known before the launch."""
    ranges = dict(around)
    for name, pair in zip(loop.names, loop.bounds, strict=True):
        first, end = (expand(one, {*around}, definitions) for one in pair)
        if first is None or end is None:
            continue
        least, last = _extremum(first, around, largest=False), _extremum(minus(end, ONE), around, largest=True)
        if least is not None and last is not None:
            ranges[name] = least, last
    return ranges


def _extremum(expr: nodes.Expr, ranges: Ranges, *, largest: bool) -> nodes.Expr | None:
    """Return the least or the largest value of an integer that is a sum of multiples; None if unknown."""
    if can_evaluate(expr):
        return expr
    index = affine(expr, {})
    total: nodes.Expr = constant(index.constant, Type.I32)
    for atom, factor in index.terms.items():
        if isinstance(atom, str) and atom not in ranges:
            return None
        # A negative multiple is largest where its variable is least.
        part = ranges[atom][largest == (factor > 0)] if isinstance(atom, str) else atom
        total = plus(total, times(constant(factor, Type.I32), part))
    return total if can_evaluate(total) else None
