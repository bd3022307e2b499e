"""Dead code eliminated: assignments to locals that are not read, and stores to memory that is not.

    a = x[i] * 2.0
    b = a + 1.0             ->      a = x[i] * 2.0
    y[i] = a                        y[i] = a

An array that nobody reads afterwards is treated like a local: a store to it stays only if something reads it later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from ...analyses import Live, Liveness, find_owned
from ...ir import nodes, opposite, walk


def eliminate_dead_code(
    body: Sequence[nodes.Stmt],
    wanted: Collection[str] = (),
    *,
    private: Collection[str] = (),
    unread: Collection[str] = (),
) -> nodes.Block:
    """Return statements without those that have no effect.

    Args:
        body: the statements.
        wanted: locals whose values are read afterwards.
        private: arrays that nobody reads afterwards: stores to them stay only before something that reads them.
        unread: arrays whose stored values nothing reads, in this kernel either: stores to them are removed.
    """
    return _Elimination(frozenset(private), frozenset(unread)).block(tuple(body), {*wanted})[0]


def find_needed(body: Sequence[nodes.Stmt], wanted: Collection[str]) -> tuple[nodes.Block, Live]:
    """Return statements without those that have no effect, and the locals that are live before them.

    Arguments as in `eliminate_dead_code`.
    """
    return _Elimination(frozenset(), frozenset()).block(tuple(body), {*wanted})


def live_before(body: Sequence[nodes.Stmt], is_wanted: Callable[[str], bool]) -> Live:
    """Return the locals that statements read before they give them a value, where only some matter afterwards."""
    wanted = set(filter(is_wanted, walk.find_defined(body)))
    return find_needed(body, wanted)[1] - wanted


class _Elimination(Liveness):
    """Keeps statements that change a live local, or memory that is read. Private arrays are live as `@name`."""

    def __init__(self, private: frozenset[str], unread: frozenset[str]) -> None:
        super().__init__()
        self.private = private
        self.unread = unread

    def statement(self, one: nodes.Stmt, live: Live, is_last: bool) -> nodes.Stmt | None:
        if not isinstance(one, nodes.For | nodes.Loop) or not one.is_parallel:
            return super().statement(one, live, is_last)
        shared = self.private & (walk.loaded_in(one) | walk.changed_in(one))
        if not shared:
            return super().statement(one, live, is_last)
        # What an iteration stores to elements of its own, no other iteration reads.
        own = _as_memory(find_owned(one, shared))

        def carry(body: nodes.Block, before: Live) -> Live:
            # Iterations follow each other in no order: another one may read what they share wherever this one is.
            return (before | _as_memory(self.private & walk.reads(body))) - own

        return self.counted_loop(one, live, carry)

    def enter(self, one: nodes.Stmt, live: Live) -> Live:
        inner = super().enter(one, live)
        if self.private:
            inner |= live & _as_memory(self.private & (walk.loaded_in(one) | walk.changed_in(one)))
        return inner

    def reads(self, one: nodes.Stmt) -> frozenset[str]:
        names = walk.locals_read(one)
        if self.private:
            # `loaded_in` counts the statements inside, too, and those are asked by themselves.
            arrays = frozenset(walk.arrays_in(walk.expressions(one))) if walk.bodies(one) else walk.loaded_in(one)
            if isinstance(one, nodes.Atomic) and one.result is not None:
                arrays |= {one.array}
            if not self.private.isdisjoint(arrays):
                names |= _as_memory(self.private & arrays)
        return names

    def changes(self, one: nodes.Stmt, live: Live) -> bool:
        """Return True if a statement changes memory that somebody reads, or may end the run."""
        return one.may_fail or (isinstance(one, nodes.Store | nodes.Atomic) and self.is_read(one.array, live))

    def is_read(self, array: str, live: Live) -> bool:
        """Return whether a value that is stored to an array is read later."""
        return array not in self.unread and (array not in self.private or f"@{array}" in live)

    def plain(self, one: nodes.Stmt, live: Live) -> nodes.Stmt | None:
        # As below, but faster, for most statements.
        if type(one) is nodes.Assign:
            if one.name not in live:
                return None
            live.discard(one.name)
            live.update(self.reads(one))
            return one
        if isinstance(one, nodes.Atomic) and one.result is not None and one.result not in live:
            one = replace(one, result=None)
        if not self.changes(one, live) and live.isdisjoint(walk.find_assigned(one)):
            return None
        return super().plain(one, live)

    def compound(self, one: nodes.Stmt, bodies: tuple[nodes.Block, ...], live: Live) -> nodes.Stmt | None:
        if not any(bodies):
            # A `continue` that skips nothing too: kept, it would keep the branch around it, and what that reads. A
            # tangent would ask for arrays that the adjoint, where it is a branch around nothing, has not saved.
            return None
        match one:
            case nodes.If() if not bodies[0]:
                return nodes.If(opposite(one.condition), bodies[1], (), one.line)
            case nodes.For() | nodes.While() if not self.is_felt(bodies[0], live):
                return None
            case nodes.Loop() if not self.is_felt(bodies[0], live) and live.isdisjoint(walk.find_assigned(one)):
                return None
        left = iter(bodies)
        return walk.with_bodies(one, lambda _: next(left))

    def is_felt(self, body: nodes.Block, live: Live) -> bool:
        """Return True if a loop changes memory that is read after it, or a local that is read after it.

        That it never ends is not an effect, nor is what it asks only for itself.
        """
        return any(
            walk.may_fail(one)
            or not live.isdisjoint(walk.defined_in(one))
            or any(self.is_read(array, live) for array in walk.changed_in(one))
            for one in body
        )


def _as_memory(arrays: Iterable[str]) -> frozenset[str]:
    return frozenset(f"@{name}" for name in arrays)
