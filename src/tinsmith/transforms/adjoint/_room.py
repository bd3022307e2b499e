"""Room: how often an iteration runs some of its statements at most, as far as that is known before the launch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...source.ir import nodes, walk
from .._algebra import constant, plus, times
from ..analysis import definitions, single_definitions
from ._evaluated import extent
from ._sums import expanded

ZERO, ONE = constant(0, "i32"), constant(1, "i32")


def most_runs(body: Sequence[nodes.Stmt], wanted: Collection[int]) -> nodes.Expr | None:
    """How often the statements whose number is wanted run; None where only a run can tell."""
    return _most(body, wanted, single_definitions(definitions(body)))


def _most(
    body: Sequence[nodes.Stmt], wanted: Collection[int], definitions: Mapping[str, nodes.Expr]
) -> nodes.Expr | None:
    total: nodes.Expr = ZERO
    for one in body:
        if one.number in wanted:
            total = plus(total, ONE)
        for part in walk.bodies(one):
            inside = _most(part, wanted, definitions)
            if isinstance(one, nodes.For | nodes.While) and inside != ZERO:
                trips = _trips(one, definitions)
                inside = None if inside is None or trips is None else times(trips, inside)
            if inside is None:
                return None
            total = plus(total, inside)
    return total


def _trips(loop: nodes.For | nodes.While, definitions: Mapping[str, nodes.Expr]) -> nodes.Expr | None:
    if isinstance(loop, nodes.While):
        return None
    return extent([(expanded(a, set(), definitions), expanded(b, set(), definitions)) for a, b in loop.bounds])
