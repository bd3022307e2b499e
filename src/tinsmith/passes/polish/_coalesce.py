"""Locals coalesced: what a loop hands on, and what branches end with, is one local that changes, as a person writes it.

    a = 0.0                           a = 0.0
    for j in range(3):                for j in range(3):
        b = a                  ->         a = a + x[i]
        c = b + x[i]                  y[i] = a
        a = c
    y[i] = a

Two locals are one where one is copied to the other and they never hold different values at a time at which both are
asked for (Chaitin's coalescing, on live ranges).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...analyses import Live, Liveness
from ...ir import Type, nodes, walk


def coalesce_locals(body: Sequence[nodes.Stmt], kinds: Mapping[str, Type]) -> nodes.Block:
    """Return the statements of a top level with fewer locals in each loop. Locals that are known outside of it stay.

    Args:
        body: the statements.
        kinds: types of locals.
    """
    statements: list[nodes.Stmt] = []
    for place, one in enumerate(body):
        if not isinstance(one, nodes.For):
            statements.append(one)
            continue
        # One local of several iterations, or of the kernel and an iteration, would be shared by them: a race.
        outside = {
            *one.names,
            *walk.locals_read(one),
            *walk.find_mentioned((*body[:place], *body[place + 1 :])),
        }
        statements.append(replace(one, body=_within(one.body, kinds, outside)))
    return tuple(statements)


def _within(body: nodes.Block, kinds: Mapping[str, Type], fixed: set[str]) -> nodes.Block:
    loops = {name for one in walk.statements(body) if isinstance(one, nodes.For) for name in one.names}
    # A loop's variable must get no other value, and a copy to another type is a cast.
    barred = fixed | loops
    pairs = [pair for pair in _copies(body) if barred.isdisjoint(pair) and kinds[pair[0]] == kinds[pair[1]]]
    conflicts = _Interference({name for pair in pairs for name in pair})
    # As a loop, since a `continue` in the body asks for what is live where an iteration ends.
    conflicts.loop(body, set(), set())
    places = {name: place for place, name in enumerate(_in_order(body))}
    merged = _MergedLocals(conflicts.of, places)
    for one, other in pairs:
        merged.join(one, other)
    return _rename(body, merged)


def _in_order(body: Sequence[nodes.Stmt]) -> Iterator[str]:
    """Yield locals by the places where they get a value, the last first: of several places, the first counts."""
    return reversed([name for one in walk.statements(body) for name in walk.find_assigned(one)])


def _copies(body: Sequence[nodes.Stmt]) -> Iterator[tuple[str, str]]:
    for one in walk.statements(body):
        if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Local):
            yield one.name, one.value.name


@dataclass
class _MergedLocals:
    """The locals merged so far, each group under the name of the local that comes first in the text.

    Attributes:
        conflicts: for some locals, others that they cannot be one with. One of the two names the other.
        places: greater for what comes earlier.
    """

    conflicts: dict[str, set[str]]
    places: Mapping[str, int]
    into: dict[str, str] = field(default_factory=dict)
    _members: dict[str, set[str]] = field(default_factory=dict)

    def name(self, local: str) -> str:
        while local in self.into:
            local = self.into[local]
        return local

    def join(self, one: str, other: str) -> None:
        """Merge two locals into one variable unless they conflict: both may be live at once with different values."""
        other, one = sorted((self.name(one), self.name(other)), key=lambda name: self.places.get(name, -1))
        if one == other or self._is_conflict(one, other) or self._is_conflict(other, one):
            return
        self.into[other] = one
        self.conflicts.setdefault(one, set()).update(self.conflicts.get(other, ()))
        self._members.setdefault(one, {one}).update(self._members_of(other))

    def _is_conflict(self, one: str, other: str) -> bool:
        return not self._members_of(other).isdisjoint(self.conflicts.get(one, ()))

    def _members_of(self, one: str) -> set[str]:
        """Return all locals that have been merged into `one`, itself included."""
        return self._members.get(one) or {one}


class _Interference(Liveness):
    """Builds the interference graph of some locals: which of them are live at the same time.

    Attributes:
        of: for each local that is given a value, those whose values are asked for later.
    """

    def __init__(self, tracked: Live) -> None:
        super().__init__(tracked)
        self.given = tracked
        self.of: dict[str, set[str]] = {}

    def enter(self, one: nodes.Stmt, live: Live) -> Live:
        # What is live across a statement is in conflict with what gets a value inside it.
        return live.copy()

    def plain(self, one: nodes.Stmt, live: Live) -> nodes.Stmt | None:
        source = one.value.name if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Local) else ""
        for name in self.given.intersection(walk.find_assigned(one)):
            # A copy and its source hold one value, so they do not conflict here (Chaitin).
            self.of.setdefault(name, set()).update(live - {name, source})
        return super().plain(one, live)


def _rename(body: nodes.Block, merged: _MergedLocals) -> nodes.Block:
    def expression(expr: nodes.Expr) -> nodes.Expr:
        if isinstance(expr, nodes.Local):
            new = merged.name(expr.name)
            return expr if new == expr.name else nodes.Local(new, expr.type)
        return walk.rebuild(expr, expression)

    renamed: list[nodes.Stmt] = []
    for old in body:
        one = old
        if not merged.into.keys().isdisjoint(walk.mentioned_in(old)):
            one = walk.rename_results(walk.with_expressions(old, expression), merged.name)
        # A copy whose two locals have become one is `a = a`, and goes.
        if not (isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Local) and one.value.name == one.name):
            renamed.append(walk.with_bodies(one, lambda inner: _rename(inner, merged)))
    return walk.keep_block(body, renamed)
