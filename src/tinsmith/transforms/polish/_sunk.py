"""Starts put where they are needed: a known number that one branch alone asks for is assigned in that branch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...source.ir import nodes, walk

Block = tuple[nodes.Stmt, ...]


def sunk(body: Sequence[nodes.Stmt]) -> Block:
    """Statements in which `s = 0` before an `if` stands inside it, where nothing else mentions `s`."""
    return _block(tuple(body), _mentions(body))


def _block(body: Block, everywhere: Counter[str]) -> Block:
    found: list[nodes.Stmt | None] = list(body)
    users = _users(body)
    for place in reversed(range(len(body))):
        one = body[place]
        if not isinstance(one, nodes.Assign) or not isinstance(one.value, nodes.Const):
            continue
        target = next((n for n in users[one.name] if n > place), None)
        branch = None if target is None else found[target]
        held = None if branch is None else _holding(branch, one, everywhere[one.name] - 1)
        if target is not None and held is not None:
            found[target], found[place] = held, None
    return tuple(_inside(one, everywhere) for one in found if one is not None)


def _users(body: Block) -> dict[str, list[int]]:
    """The places of the statements that mention each local."""
    found: dict[str, list[int]] = {}
    for place, one in enumerate(body):
        for name in _mentions([one]):
            found.setdefault(name, []).append(place)
    return found


def _holding(branch: nodes.Stmt, start: nodes.Assign, others: int) -> nodes.Stmt | None:
    """A branch with a start in it; None where it is not the only one to mention the local."""
    if not isinstance(branch, nodes.If):
        return None
    inside = [_mentions(part)[start.name] for part in (branch.body, branch.orelse)]
    if inside == [others, 0]:
        return replace(branch, body=(start, *branch.body))
    return replace(branch, orelse=(start, *branch.orelse)) if inside == [0, others] else None


def _inside(one: nodes.Stmt, everywhere: Counter[str]) -> nodes.Stmt:
    match one:
        case nodes.If():
            return replace(one, body=_block(one.body, everywhere), orelse=_block(one.orelse, everywhere))
        case nodes.For() | nodes.While():
            return replace(one, body=_block(one.body, everywhere))
        case _:
            return one


def _mentions(body: Sequence[nodes.Stmt]) -> Counter[str]:
    """How many statements read or assign each local."""
    found: Counter[str] = Counter()
    for one in walk.statements(body):
        found.update({*walk.assigned(one), *walk.locals_in(walk.expressions(one))})
    return found
