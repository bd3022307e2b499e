"""Branches joined: of two that ask the same one after the other, what the first works out the second need not keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...source.ir import nodes, walk
from ..analysis import defined, mentioned

Block = tuple[nodes.Stmt, ...]


def joined(body: Sequence[nodes.Stmt]) -> Block:
    """Statements in which an `if` goes into one before it that asks the same; what lies between goes before both."""
    found = [_inside(one) for one in body]
    place = 0
    while place < len(found):
        other = _partner(found, place)
        if other is None:
            place += 1
            continue
        one, two = found[place], found[other]
        assert isinstance(one, nodes.If) and isinstance(two, nodes.If)
        whole = replace(one, body=joined((*one.body, *two.body)), orelse=joined((*one.orelse, *two.orelse)))
        found[place : other + 1] = [*found[place + 1 : other], whole]
    return tuple(found)


def _partner(body: Sequence[nodes.Stmt], place: int) -> int | None:
    """Where the branch stands that can be joined to the one here."""
    one = body[place]
    if not isinstance(one, nodes.If) or not isinstance(one.condition, nodes.Local) or _leaves(one):
        return None
    mentions, assigned = mentioned([one]), defined([one])
    if one.condition.name in assigned:
        return None
    for other in range(place + 1, len(body)):
        two = body[other]
        if isinstance(two, nodes.If) and two.condition == one.condition:
            return other
        if not isinstance(two, nodes.Assign) or two.name in mentions or not _is_apart(two.value, assigned):
            return None
    return None


def _inside(one: nodes.Stmt) -> nodes.Stmt:
    match one:
        case nodes.If(nodes.Unary("not", nodes.Local() as condition)):
            return replace(one, condition=condition, body=joined(one.orelse), orelse=joined(one.body))
        case nodes.If():
            return replace(one, body=joined(one.body), orelse=joined(one.orelse))
        case nodes.For() | nodes.While():
            return replace(one, body=joined(one.body))
        case _:
            return one


def _is_apart(value: nodes.Expr, assigned: set[str]) -> bool:
    """Whether a value is the same before the branch."""
    parts = list(walk.parts(value))
    return not any(
        isinstance(one, nodes.Load) or (isinstance(one, nodes.Local) and one.name in assigned) for one in parts
    )


def _leaves(one: nodes.Stmt) -> bool:
    return any(isinstance(part, nodes.Break | nodes.Continue) for part in walk.statements([one]))
