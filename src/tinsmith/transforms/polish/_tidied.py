"""Sums that start at 0 start at their first term instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...source.ir import nodes, walk
from .._algebra import is_constant, negated
from ..analysis import mentioned

Block = tuple[nodes.Stmt, ...]


def tidied(body: Sequence[nodes.Stmt]) -> Block:
    """Statements in which no `s = 0` is followed by `s = s + e` before anything else asks for `s`."""
    found: list[nodes.Stmt | None] = [_inside(one) for one in body]
    mentions = [mentioned([one]) for one in body]
    waiting: dict[str, int] = {}
    for place, one in enumerate(found):
        for name in mentions[place] & waiting.keys():
            begun = _begun(name, one)
            if begun is not None:
                found[place], found[waiting[name]] = begun, None
            del waiting[name]
        if isinstance(one, nodes.Assign) and is_constant(one.value, 0):
            waiting[one.name] = place
    return tuple(one for one in found if one is not None)


def _inside(one: nodes.Stmt) -> nodes.Stmt:
    match one:
        case nodes.If():
            return replace(one, body=tidied(one.body), orelse=tidied(one.orelse))
        case nodes.For() | nodes.While():
            return replace(one, body=tidied(one.body))
        case _:
            return one


def _begun(name: str, one: nodes.Stmt | None) -> nodes.Stmt | None:
    """`s = s + e` as `s = e`."""
    if not isinstance(one, nodes.Assign) or one.name != name or not isinstance(one.value, nodes.Binary):
        return None
    left, right = one.value.left, one.value.right
    if not isinstance(left, nodes.Local) or left.name != name or name in walk.locals_in([right]):
        return None
    if one.value.operator == "+":
        return replace(one, value=right)
    return replace(one, value=negated(right)) if one.value.operator == "-" else None
