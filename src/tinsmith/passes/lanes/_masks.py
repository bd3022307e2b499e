"""Choices by masks, which are truths, one for each lane: of the lanes that a statement is for."""

from __future__ import annotations

from dataclasses import replace

from ...ir import TRUE, Operator, Type, both, cast, constant, nodes, opposite, or_else


def select_changed(mask: nodes.Expr, value: nodes.Expr, old: nodes.Local) -> nodes.Expr:
    """A local's new value in the lanes of a mask, its old one in others.

    Where something is added to it, or it is multiplied, others add 0 or multiply by 1: a choice between old and new
    values that is stored where the old ones were becomes, in LLVM 22, a masked store, which is slow on CPUs with AVX2.
    A zero may lose its sign by that, as by the engines' fast arithmetic.
    """
    match value:
        case nodes.Binary(Operator.ADD | Operator.SUB | Operator.MUL as operator, nodes.Local(old.name), change):
            neutral = constant(1 if operator == "*" else 0, change.type)
            return replace(value, right=select(mask, change, neutral))
    return select(mask, value, old)


def select(mask: nodes.Expr, value: nodes.Expr, otherwise: nodes.Expr) -> nodes.Expr:
    """One of two values, the first as the other one's type; truths by logic, which engines select less well."""
    if mask == TRUE:
        return value
    if otherwise.type == Type.U1:
        return or_else(both(mask, value), nodes.Binary(Operator.AND, opposite(mask), otherwise, Type.U1))
    return nodes.Select(mask, cast(value, otherwise.type), otherwise, otherwise.type)
