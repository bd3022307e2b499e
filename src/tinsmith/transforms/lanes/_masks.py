"""Masks: truths, one for each lane, of which lanes a statement is for."""

from __future__ import annotations

from collections.abc import Sequence

from ...source.ir import nodes
from .._algebra import FALSE, TRUE, both, cast, opposite


def either(one: nodes.Expr, other: nodes.Expr) -> nodes.Expr:
    """The mask of lanes in one of two, or in both."""
    if TRUE in (one, other):
        return TRUE
    if FALSE in (one, other):
        return other if one == FALSE else one
    return nodes.Binary("or", one, other, "u1")


def conjunction(tests: Sequence[nodes.Expr]) -> nodes.Expr:
    """The mask of lanes for which all tests hold."""
    mask: nodes.Expr = TRUE
    for one in tests:
        mask = both(mask, one)
    return mask


def select(mask: nodes.Expr, value: nodes.Expr, otherwise: nodes.Expr) -> nodes.Expr:
    """One of two values, the first as the other one's type; truths by logic, which engines select less well."""
    if mask == TRUE:
        return value
    if otherwise.type == "u1":
        rest = nodes.Binary("and", opposite(mask), otherwise, "u1")
        return either(both(mask, value), rest)
    return nodes.Select(mask, cast(value, otherwise.type), otherwise, otherwise.type)
