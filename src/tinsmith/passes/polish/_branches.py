"""Constants and branches brought together: constants sink into branches, and branches on one condition are merged.

    if p:                       if p:
        a = x[i]                    a = x[i]
    s = 0.0                ->       s = 0.0
    if p:                           y[i] = a + s
        y[i] = a + s

A sum that starts at 0 starts with what is first added to it instead: `s = 0.0; s = s + e` becomes `s = e`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeGuard

from ...ir import Operator, is_constant, negate, nodes, walk


def sink_constants(body: Sequence[nodes.Stmt]) -> nodes.Block:
    """Return statements with `s = 0` moved into the `if` behind it, if nothing else mentions `s`."""
    started = {one.name for one in walk.statements(body) if _is_start(one)}
    return _sink(tuple(body), _count_mentions(body, started)) if started else tuple(body)


def _is_start(one: nodes.Stmt) -> TypeGuard[nodes.Assign]:
    return type(one) is nodes.Assign and type(one.value) is nodes.Const


def _sink(body: nodes.Block, everywhere: Mapping[str, int]) -> nodes.Block:
    """Sink the starts of a block. `everywhere` counts the statements that mention each local that is started."""
    started = {one.name for one in body if _is_start(one)}
    following: dict[str, int] = {}
    inside: dict[int, list[dict[str, int]]] = {}
    heads: dict[int, tuple[list[nodes.Stmt], ...]] = {}
    statements: list[nodes.Stmt | None] = list(body)
    for place in reversed(range(len(body))) if started else ():
        one = body[place]
        target = following.get(one.name) if _is_start(one) else None
        if target is not None and isinstance(body[target], nodes.If):
            assert isinstance(one, nodes.Assign)
            if target not in inside:
                inside[target] = [_count_mentions(arm, started) for arm in walk.bodies(body[target])]
            # All other mentions are in one arm: nobody reads the local after the branch, in its condition, in the other
            # arm, or in a later iteration of a loop around.
            counts, others = [arm.get(one.name, 0) for arm in inside[target]], everywhere[one.name] - 1
            if counts in ([others, 0], [0, others]):
                heads.setdefault(target, ([], []))[counts.index(others)].append(one)
                statements[place] = None
        # Going backwards, so that this is the next statement that mentions the local.
        following |= dict.fromkeys(started & walk.mentioned_in(one), place)
    for target, arms in heads.items():
        left = iter(arms)
        statements[target] = walk.with_bodies(body[target], lambda arm, left=left: (*reversed(next(left)), *arm))
    sunk = [walk.with_bodies(one, lambda inner: _sink(inner, everywhere)) for one in statements if one is not None]
    return walk.keep_block(body, sunk)


def _count_mentions(body: Sequence[nodes.Stmt], names: AbstractSet[str]) -> dict[str, int]:
    """Count the statements that read or assign each of some locals."""
    counts: dict[str, int] = {}
    waiting = [*body]
    while waiting:
        one = waiting.pop()
        if names.isdisjoint(walk.mentioned_in(one)):
            continue
        for name in names & walk.locals_read(one).union(walk.find_assigned(one)):
            counts[name] = counts.get(name, 0) + 1
        for inner in walk.bodies(one):
            waiting += inner
    return counts


def merge_branches(body: Sequence[nodes.Stmt]) -> nodes.Block:
    """Return statements in which an `if` is merged into an earlier one with the same condition.

    What lies between goes before both or after both; a copy that may do neither goes into both arms.
    """
    statements = [walk.with_bodies(_normalize_condition(one), merge_branches) for one in body]
    place = 0
    while place < len(statements):
        pair = _find_pair(statements, place)
        if pair is None:
            place += 1
            continue
        arms = ((*first, *pair.inside, *second) for first, second in zip(*map(walk.bodies, pair.branches), strict=True))
        both = replace(pair.branches[0], **dict(zip(("body", "orelse"), arms, strict=True)))
        whole = walk.with_bodies(both, merge_branches)
        statements[place : pair.end] = [*pair.before, whole, *pair.after]
    return walk.keep_block(body, statements)


def _normalize_condition(one: nodes.Stmt) -> nodes.Stmt:
    """Return a branch on `not c` as one on `c`, so that it is merged with others on `c`."""
    match one:
        case nodes.If(nodes.Unary(Operator.NOT, nodes.Local() as condition), body, orelse):
            return replace(one, condition=condition, body=orelse, orelse=body)
    return one


@dataclass(frozen=True)
class _Pair:
    """Two branches on one condition; `end` is behind the second, and the other fields are what lies between."""

    branches: tuple[nodes.If, nodes.If]
    end: int
    before: list[nodes.Stmt]
    inside: list[nodes.Stmt]
    after: list[nodes.Stmt]


def _find_pair(body: Sequence[nodes.Stmt], place: int) -> _Pair | None:
    """Return the branch at a place with a later one that can be merged into it; None if there is none."""
    one = body[place]
    # A condition that is a local does not change with memory, which the first branch may store to. Behind a jump out of
    # it, the second branch must not run.
    if not isinstance(one, nodes.If) or not isinstance(one.condition, nodes.Local) or walk.has_jumps([one]):
        return None
    first = _Uses.of(one)
    # The second branch would ask for another value.
    if one.condition.name in first.defined:
        return None
    between: list[nodes.Assign] = []
    for end, two in enumerate(body[place + 1 :], place + 2):
        if isinstance(two, nodes.If) and two.condition == one.condition:
            second = _Uses.of(two)
            places = _place_between(between, first, second, False) or _place_between(between, first, second, True)
            return None if places is None else _Pair((one, two), end, *places)
        # What reads or changes memory is not moved past a branch that may change it.
        if not isinstance(two, nodes.Assign) or walk.reads_memory(two.value) or two.name == one.condition.name:
            return None
        between.append(two)
    return None


def _place_between(
    between: Sequence[nodes.Assign], first: _Uses, second: _Uses, prefers_inside: bool
) -> tuple[list[nodes.Stmt], list[nodes.Stmt], list[nodes.Stmt]] | None:
    """Divide the statements between two branches that are to be merged, by where they go.

    Each goes before the merged branch, inside (a copy in each arm), or after it. Return the three lists, or None if a
    statement fits nowhere. A statement that fits both inside and after goes inside if `prefers_inside`: a later one may
    need it there, so callers try both.
    """
    places: tuple[list[nodes.Stmt], list[nodes.Stmt], list[nodes.Stmt]] = [], [], []
    inside, after = first, _Uses()
    for one in between:
        uses = _Uses.of(one)
        # Only what costs nothing is written twice, once in each arm.
        may_be_inside = isinstance(one.value, nodes.Local | nodes.Const) and uses.commutes(after)
        may_be_after = uses.commutes(second)
        if uses.commutes(inside) and uses.commutes(after):
            places[0].append(one)
        elif may_be_inside and (prefers_inside or not may_be_after):
            places[1].append(one)
            inside |= uses
        elif may_be_after:
            places[2].append(one)
            after |= uses
        else:
            return None
    return places


@dataclass(frozen=True)
class _Uses:
    """Locals that statements give a value, and those that they mention."""

    defined: frozenset[str] = frozenset()
    mentioned: frozenset[str] = frozenset()

    @classmethod
    def of(cls, one: nodes.Stmt) -> _Uses:
        return cls(walk.defined_in(one), walk.mentioned_in(one))

    def __or__(self, other: _Uses) -> _Uses:
        return _Uses(self.defined | other.defined, self.mentioned | other.mentioned)

    def commutes(self, other: _Uses) -> bool:
        """Return True if statements may change their order: some of them use no memory."""
        return self.defined.isdisjoint(other.mentioned) and other.defined.isdisjoint(self.mentioned)


def start_sums(body: Sequence[nodes.Stmt]) -> nodes.Block:
    """Return statements without `s = 0` where `s = s + e` follows before anything else reads `s`."""
    statements: list[nodes.Stmt | None] = [walk.with_bodies(one, start_sums) for one in body]
    waiting: dict[str, int] = {}
    for place, one in enumerate(statements):
        for name in walk.mentioned_in(body[place]) & waiting.keys() if waiting else ():
            # Any mention ends the wait. In a loop or a branch, the sum may be added to what the iteration before left,
            # or not at all.
            started = _start_sum(name, one)
            if started is not None:
                statements[place], statements[waiting[name]] = started, None
            del waiting[name]
        if isinstance(one, nodes.Assign) and is_constant(one.value, 0):
            waiting[one.name] = place
    return walk.keep_block(body, [one for one in statements if one is not None])


def _start_sum(name: str, one: nodes.Stmt | None) -> nodes.Stmt | None:
    """Return `s = s + e` as `s = e`, and `s = s - e` as `s = -e`; None for other statements."""
    if not isinstance(one, nodes.Assign) or one.name != name or not isinstance(one.value, nodes.Binary):
        return None
    left, right = one.value.left, one.value.right
    if not isinstance(left, nodes.Local) or left.name != name or name in walk.locals_in([right]):
        return None
    if one.value.operator == Operator.ADD:
        return replace(one, value=right)
    return replace(one, value=negate(right)) if one.value.operator == Operator.SUB else None
