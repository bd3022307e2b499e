"""Dead code eliminated: assignments to locals that are not read, stores to memory that is not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from operator import is_

from ...source.ir import nodes, walk
from .._algebra import opposite
from ..analysis import Live, Liveness, find_owned


def eliminate_dead_code(
    body: Sequence[nodes.Stmt],
    wanted: Collection[str] = (),
    *,
    private: Collection[str] = (),
    unread: Collection[str] = (),
) -> nodes.Block:
    """Statements without what has no effect.

    Args:
        body: the statements.
        wanted: locals whose values are read afterwards.
        private: arrays that nobody reads afterwards: stores to them stay only where something that reads them is left.
        unread: arrays of which nobody reads what is stored, here either: no stores to them stay.
    """
    body, read = tuple(body), set[str]()
    while True:
        left, _ = _Elimination(set(private) - read | {*unread}).block(body, frozenset(wanted))
        seen = walk.reads(left) & set(private)
        if seen <= read:
            return left
        read |= seen


def eliminate_dead_code_of_tasks(tasks: Sequence[nodes.Stmt], *, private: Collection[str]) -> nodes.Block:
    """`eliminate_dead_code` for a kernel's top level, which runs once: what only earlier tasks read is not stored.

    The adjoint of a kernel leaves such a store out. A tangent that kept it would read what the store is made of,
    which nobody has saved for a second derivative.

    Args:
        tasks: the statements of the top level.
        private: arrays that nobody reads after the last task.
    """
    statements = tuple(tasks)
    while True:
        before, statements = (
            statements,
            eliminate_dead_code(_without_late_stores(statements, private), private=private),
        )
        if statements == before:
            return statements


def _without_late_stores(tasks: nodes.Block, private: Collection[str]) -> nodes.Block:
    read_later, wanted = set[str](), set[str]()
    kept: nodes.Block = ()
    for array in private:
        tasks = drop_last_stores(tasks, array)
    for task in reversed(tasks):
        live = eliminate_dead_code([task], wanted, private=set(private) - read_later)
        read_later |= walk.reads(live)
        wanted |= walk.find_read(live)
        kept = (*live, *kept)
    return kept


def live_before(body: Sequence[nodes.Stmt], is_wanted: Callable[[str], bool]) -> frozenset[str]:
    """Locals that statements read before they give them a value, where only some matter afterwards."""
    wanted = frozenset(filter(is_wanted, walk.find_defined(body)))
    return _Elimination(set()).block(tuple(body), wanted)[1] - wanted


def drop_last_stores(tasks: Sequence[nodes.Stmt], array: str) -> nodes.Block:
    """A kernel's top level without the stores to an array after which nobody reads it, nor after the kernel.

    Iterations of a parallel loop follow each other in no order, so all of it counts as read where they share elements.
    """
    left: list[nodes.Stmt] = []
    is_read = False
    for one in reversed(tasks):
        if isinstance(one, nodes.For) and one.is_parallel:
            is_read = is_read or (array in walk.reads([one]) and array not in find_owned(one))
            body, is_read = _without_last_stores(one.body, array, is_read=is_read)
            left.append(one if body is one.body else replace(one, body=body))
        else:
            kept, is_read = _without_last_stores((one,), array, is_read=is_read)
            left += reversed(kept)
    return tuple(reversed(left))


def _without_last_stores(body: nodes.Block, array: str, *, is_read: bool) -> tuple[nodes.Block, bool]:
    """Statements without stores that nobody reads, and whether somebody reads the array from them on."""
    left: list[nodes.Stmt] = []
    for place in reversed(range(len(body))):
        if is_read:  # all that comes before stays
            left += reversed(body[: place + 1])
            break
        one = body[place]
        is_store = isinstance(one, nodes.Store) or (isinstance(one, nodes.Atomic) and one.result is None)
        if is_store and one.array == array:  # type: ignore[union-attr]
            continue
        is_read = isinstance(one, nodes.Atomic) and one.array == array
        is_read |= isinstance(one, nodes.For | nodes.While) and array in walk.reads(one.body)  # the next iteration may
        parts = [_without_last_stores(part, array, is_read=is_read) for part in walk.bodies(one)]
        is_read |= any(is_part_read for _, is_part_read in parts) or array in walk.arrays_in(walk.expressions(one))
        bodies = iter(part for part, _ in parts)
        left.append(walk.with_bodies(one, lambda _, bodies=bodies: next(bodies)))
    return body if len(left) == len(body) and all(map(is_, reversed(left), body)) else tuple(reversed(left)), is_read


class _Elimination(Liveness):
    """Keeps what changes memory, or a live local; `idle` are arrays that nobody reads."""

    def __init__(self, idle: set[str]) -> None:
        super().__init__()
        self.idle = idle

    def plain(self, one: nodes.Stmt, live: Live) -> tuple[nodes.Stmt | None, Live]:
        if type(one) is nodes.Assign:  # as below, for most statements
            return (one, live - {one.name} | walk.locals_in((one.value,))) if one.name in live else (None, live)
        if isinstance(one, nodes.Atomic) and one.result is not None and one.result not in live:
            one = replace(one, result=None)
        given = walk.find_assigned(one)
        is_idle = one.array in self.idle if isinstance(one, nodes.Store | nodes.Atomic) else True
        if is_idle and live.isdisjoint(given):
            return None, live
        return one, live.difference(given) | walk.locals_in(walk.expressions(one))

    def compound(
        self, one: nodes.Stmt, bodies: tuple[nodes.Block, ...], before: Live, live: Live
    ) -> tuple[nodes.Stmt | None, Live]:
        if not any(bodies):
            # A `continue` that skips nothing too: kept, it would keep the branch around it, and what that reads. A
            # tangent would ask for arrays that the adjoint, where it is a branch around nothing, has not saved.
            return None, live
        match one:
            case nodes.If() if not bodies[0]:
                return nodes.If(opposite(one.condition), bodies[1], (), one.line), before
            case nodes.For() | nodes.While() if not _is_felt(bodies[0], live, self.idle):
                return None, live
        left = iter(bodies)
        return walk.with_bodies(one, lambda _: next(left)), before


def _is_felt(body: nodes.Block, live: Live, idle: Collection[str]) -> bool:
    """Whether a loop changes memory that somebody reads, or a local that is read after it.

    That it never ends is not an effect, nor is an atomic on idle memory whose result the loop asks for itself.
    """
    return any(
        (isinstance(one, nodes.Store | nodes.Atomic) and one.array not in idle)
        or not live.isdisjoint(walk.find_assigned(one))
        for one in walk.statements(body)
    )
