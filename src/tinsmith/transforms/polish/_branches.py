"""Starts and branches put together: a known number goes where it is asked for, branches that ask the same are one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...source.ir import nodes, walk
from .._algebra import is_constant, negate
from ..analysis import find_defined, find_mentioned

Block = tuple[nodes.Stmt, ...]


def sink_constants(body: Sequence[nodes.Stmt]) -> Block:
    """Statements in which `s = 0` before an `if` stands inside it, where nothing else mentions `s`."""
    return _sink(tuple(body), _mentions(body))


def _sink(body: Block, everywhere: Counter[str]) -> Block:
    statements: list[nodes.Stmt | None] = list(body)
    starts = [n for n, one in enumerate(body) if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Const)]
    users = _users(body) if starts else {}
    for place in reversed(starts):
        one = body[place]
        assert isinstance(one, nodes.Assign)
        target = next((n for n in users[one.name] if n > place), None)
        branch = None if target is None else statements[target]
        held = None if branch is None else _holding(branch, one, everywhere[one.name] - 1)
        if target is not None and held is not None:
            statements[target], statements[place] = held, None
    return tuple(walk.with_bodies(one, lambda inner: _sink(inner, everywhere)) for one in statements if one is not None)


def _users(body: Block) -> dict[str, list[int]]:
    """The places of the statements that mention each local."""
    users: dict[str, list[int]] = {}
    for place, one in enumerate(body):
        for name in _mentions([one]):
            users.setdefault(name, []).append(place)
    return users


def _holding(branch: nodes.Stmt, start: nodes.Assign, others: int) -> nodes.Stmt | None:
    """A branch with a start in it; None where it is not the only one to mention the local."""
    if not isinstance(branch, nodes.If):
        return None
    inside = [_mentions(part)[start.name] for part in (branch.body, branch.orelse)]
    if inside == [others, 0]:
        return replace(branch, body=(start, *branch.body))
    return replace(branch, orelse=(start, *branch.orelse)) if inside == [0, others] else None


def _mentions(body: Sequence[nodes.Stmt]) -> Counter[str]:
    """How many statements read or assign each local."""
    counts: Counter[str] = Counter()
    for one in walk.statements(body):
        counts.update({*walk.find_assigned(one), *walk.locals_in(walk.expressions(one))})
    return counts


def merge_branches(body: Sequence[nodes.Stmt]) -> Block:
    """Statements in which an `if` goes into one before it that asks the same; what lies between goes before both."""
    statements = [walk.with_bodies(_normalize_condition(one), merge_branches) for one in body]
    place = 0
    while place < len(statements):
        other = _partner(statements, place)
        if other is None:
            place += 1
            continue
        one, two = statements[place], statements[other]
        assert isinstance(one, nodes.If) and isinstance(two, nodes.If)
        both = replace(one, body=(*one.body, *two.body), orelse=(*one.orelse, *two.orelse))
        whole = walk.with_bodies(both, merge_branches)
        statements[place : other + 1] = [*statements[place + 1 : other], whole]
    return tuple(statements)


def _normalize_condition(one: nodes.Stmt) -> nodes.Stmt:
    """A branch on `not c` as one on `c`, so that it finds its partner."""
    match one:
        case nodes.If(nodes.Unary("not", nodes.Local() as condition), body, orelse):
            return replace(one, condition=condition, body=orelse, orelse=body)
    return one


def _partner(body: Sequence[nodes.Stmt], place: int) -> int | None:
    """Where the branch stands that can be joined to the one here."""
    one = body[place]
    if not isinstance(one, nodes.If) or not isinstance(one.condition, nodes.Local) or walk.has_jumps([one]):
        return None
    mentions, assigned = find_mentioned([one]), find_defined([one])
    if one.condition.name in assigned:
        return None
    for other in range(place + 1, len(body)):
        two = body[other]
        if isinstance(two, nodes.If) and two.condition == one.condition:
            return other
        if not isinstance(two, nodes.Assign) or two.name in mentions or not _is_unaffected(two.value, assigned):
            return None
    return None


def _is_unaffected(value: nodes.Expr, assigned: set[str]) -> bool:
    """Whether a value is the same before the branch."""
    return not walk.reads_memory(value) and assigned.isdisjoint(walk.locals_in([value]))


def start_sums(body: Sequence[nodes.Stmt]) -> Block:
    """Statements in which no `s = 0` is followed by `s = s + e` before anything else asks for `s`."""
    statements: list[nodes.Stmt | None] = [walk.with_bodies(one, start_sums) for one in body]
    waiting: dict[str, int] = {}
    for place, one in enumerate(statements):
        for name in find_mentioned([body[place]]) & waiting.keys() if waiting else ():
            started = _start_sum(name, one)
            if started is not None:
                statements[place], statements[waiting[name]] = started, None
            del waiting[name]
        if isinstance(one, nodes.Assign) and is_constant(one.value, 0):
            waiting[one.name] = place
    return tuple(one for one in statements if one is not None)


def _start_sum(name: str, one: nodes.Stmt | None) -> nodes.Stmt | None:
    """`s = s + e` as `s = e`."""
    if not isinstance(one, nodes.Assign) or one.name != name or not isinstance(one.value, nodes.Binary):
        return None
    left, right = one.value.left, one.value.right
    if not isinstance(left, nodes.Local) or left.name != name or name in walk.locals_in([right]):
        return None
    if one.value.operator == "+":
        return replace(one, value=right)
    return replace(one, value=negate(right)) if one.value.operator == "-" else None
