"""Starts and branches put together: a known number goes where it is asked for, branches that ask the same are one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir import Operator, is_constant, negate, nodes, walk


def sink_constants(body: Sequence[nodes.Stmt]) -> nodes.Block:
    """Statements in which `s = 0` before an `if` stands inside it, where nothing else mentions `s`."""
    return _sink(tuple(body), _mentions(body))


def _sink(body: nodes.Block, everywhere: Mapping[str, int]) -> nodes.Block:
    statements: list[nodes.Stmt | None] = list(body)
    starts = [n for n, one in enumerate(body) if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Const)]
    users = _users(body, starts[0]) if starts else {}
    for place in reversed(starts):
        one = body[place]
        assert isinstance(one, nodes.Assign)
        target = next((n for n in users[one.name] if n > place), None)
        branch = None if target is None else statements[target]
        held = None if branch is None else _holding(branch, one, everywhere[one.name] - 1)
        if target is not None and held is not None:
            statements[target], statements[place] = held, None
    sunk = [walk.with_bodies(one, lambda inner: _sink(inner, everywhere)) for one in statements if one is not None]
    return walk.keep_block(body, sunk)


def _users(body: nodes.Block, first: int) -> dict[str, list[int]]:
    """The places of the statements that mention each local, from the `first` one on."""
    users: dict[str, list[int]] = {}
    for place in range(first, len(body)):
        for name in walk.mentioned_in(body[place]):
            users.setdefault(name, []).append(place)
    return users


def _holding(branch: nodes.Stmt, start: nodes.Assign, others: int) -> nodes.Stmt | None:
    """A branch with a start in it; None where it is not the only one to mention the local."""
    if not isinstance(branch, nodes.If):
        return None
    inside = [_mentions(part).get(start.name, 0) for part in (branch.body, branch.orelse)]
    if inside == [others, 0]:
        return replace(branch, body=(start, *branch.body))
    return replace(branch, orelse=(start, *branch.orelse)) if inside == [0, others] else None


def _mentions(body: Sequence[nodes.Stmt]) -> dict[str, int]:
    """How many statements read or assign each local."""
    # Not a `Counter`, which takes longer to be told of a few names than they take to be found.
    counts: dict[str, int] = {}
    for one in walk.statements(body):
        for name in walk.locals_read(one).union(walk.find_assigned(one)):
            counts[name] = counts.get(name, 0) + 1
    return counts


def merge_branches(body: Sequence[nodes.Stmt]) -> nodes.Block:
    """Statements in which an `if` goes into one before it that asks the same.

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
    """A branch on `not c` as one on `c`, so that it finds its partner."""
    match one:
        case nodes.If(nodes.Unary(Operator.NOT, nodes.Local() as condition), body, orelse):
            return replace(one, condition=condition, body=orelse, orelse=body)
    return one


@dataclass(frozen=True)
class _Pair:
    """Two branches that ask the same; `end` is behind the second, and the others are what lies between."""

    branches: tuple[nodes.If, nodes.If]
    end: int
    before: list[nodes.Stmt]
    inside: list[nodes.Stmt]
    after: list[nodes.Stmt]


def _find_pair(body: Sequence[nodes.Stmt], place: int) -> _Pair | None:
    """The branch here, with the one that can be joined to it."""
    one = body[place]
    if not isinstance(one, nodes.If) or not isinstance(one.condition, nodes.Local) or walk.has_jumps([one]):
        return None
    first = _Uses.of(one)
    if one.condition.name in first.defined:
        return None
    between: list[nodes.Assign] = []
    for end, two in enumerate(body[place + 1 :], place + 2):
        if isinstance(two, nodes.If) and two.condition == one.condition:
            second = _Uses.of(two)
            places = _place_between(between, first, second, False) or _place_between(between, first, second, True)
            return None if places is None else _Pair((one, two), end, *places)
        if not isinstance(two, nodes.Assign) or walk.reads_memory(two.value) or two.name == one.condition.name:
            return None
        between.append(two)
    return None


def _place_between(
    between: Sequence[nodes.Assign], first: _Uses, second: _Uses, prefers_inside: bool
) -> tuple[list[nodes.Stmt], list[nodes.Stmt], list[nodes.Stmt]] | None:
    """What lies between two branches: before, inside both arms, and after; None where a statement fits nowhere.

    What goes after may be wanted by what goes inside, so there are two ways to try.
    """
    places: tuple[list[nodes.Stmt], list[nodes.Stmt], list[nodes.Stmt]] = [], [], []
    inside, after = first, _Uses()
    for one in between:
        uses = _Uses.of(one)
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
        """Whether statements may change places, of which some use no memory."""
        return self.defined.isdisjoint(other.mentioned) and other.defined.isdisjoint(self.mentioned)


def start_sums(body: Sequence[nodes.Stmt]) -> nodes.Block:
    """Statements in which no `s = 0` is followed by `s = s + e` before anything else asks for `s`."""
    statements: list[nodes.Stmt | None] = [walk.with_bodies(one, start_sums) for one in body]
    waiting: dict[str, int] = {}
    for place, one in enumerate(statements):
        for name in walk.mentioned_in(body[place]) & waiting.keys() if waiting else ():
            started = _start_sum(name, one)
            if started is not None:
                statements[place], statements[waiting[name]] = started, None
            del waiting[name]
        if isinstance(one, nodes.Assign) and is_constant(one.value, 0):
            waiting[one.name] = place
    return walk.keep_block(body, [one for one in statements if one is not None])


def _start_sum(name: str, one: nodes.Stmt | None) -> nodes.Stmt | None:
    """`s = s + e` as `s = e`."""
    if not isinstance(one, nodes.Assign) or one.name != name or not isinstance(one.value, nodes.Binary):
        return None
    left, right = one.value.left, one.value.right
    if not isinstance(left, nodes.Local) or left.name != name or name in walk.locals_in([right]):
        return None
    if one.value.operator == Operator.ADD:
        return replace(one, value=right)
    return replace(one, value=negate(right)) if one.value.operator == Operator.SUB else None
