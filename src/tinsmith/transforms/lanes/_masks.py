"""Masks: truths, one for each lane, of which lanes a statement is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...source.ir import nodes
from .._algebra import FALSE, TRUE, both, cast, constant, opposite


def either(one: nodes.Expr, other: nodes.Expr) -> nodes.Expr:
    """The mask of lanes in one of two, or in both."""
    if TRUE in (one, other):
        return TRUE
    if FALSE in (one, other):
        return other if one == FALSE else one
    return nodes.Binary("or", one, other, "u1")


def select_changed(mask: nodes.Expr, value: nodes.Expr, old: nodes.Local) -> nodes.Expr:
    """A local's new value in the lanes of a mask, its old one in others.

    Where something is added to it, or it is multiplied, others add 0 or multiply by 1: a choice between old and new
    values that is stored where the old ones were becomes, in LLVM 22, a masked store, which is slow on CPUs with AVX2.
    A zero may lose its sign by that, as by the engines' fast arithmetic.
    """
    match value:
        case nodes.Binary("+" | "-" | "*" as operator, nodes.Local(old.name), change):
            neutral = constant(1 if operator == "*" else 0, change.type)
            return replace(value, right=select(mask, change, neutral))
    return select(mask, value, old)


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
