"""Leave out what nobody needs: assignments to locals that are not read, stores to memory that is not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ...source.ir import nodes, walk

Block = tuple[nodes.Stmt, ...]


def pruned(body: Sequence[nodes.Stmt], wanted: Collection[str] = (), *, private: Collection[str] = ()) -> Block:
    """Statements without what has no effect.

    Args:
        body: the statements.
        wanted: locals whose values are read afterwards.
        private: arrays that nobody reads afterwards: stores to them stay only where something that reads them is left.
    """
    body, read = tuple(body), set[str]()
    while True:
        found, _ = _Pruning(set(private) - read).block(body, set(wanted))
        seen = walk.reads(found) & set(private)
        if seen <= read:
            return found
        read |= seen


def pruned_tasks(tasks: Sequence[nodes.Stmt], locals_: Collection[str], *, private: Collection[str]) -> Block:
    """`pruned`, for a kernel's top level, which runs once: what only earlier tasks read need not be stored either.

    The adjoint of a kernel leaves such a store out. A tangent that kept it would read what the store is made of,
    which nobody has saved for a second derivative.

    Args:
        tasks: the statements of the top level.
        locals_: every local of the kernel.
        private: arrays that nobody reads after the last task.
    """
    found = tuple(tasks)
    while True:
        before, found = found, pruned(_without_late_stores(found, locals_, private), private=private)
        if found == before:
            return found


def _without_late_stores(tasks: Block, locals_: Collection[str], private: Collection[str]) -> Block:
    read_later = set[str]()
    kept: Block = ()
    for task in reversed(tasks):
        found = pruned([task], locals_, private=set(private) - read_later)
        read_later |= walk.reads(found)
        kept = (*found, *kept)
    return kept


def live_before(body: Sequence[nodes.Stmt], is_wanted: Callable[[str], bool]) -> set[str]:
    """Locals that statements read before they give them a value, where only some matter afterwards."""
    wanted = {name for one in walk.statements(body) for name in walk.assigned(one) if is_wanted(name)}
    return _Pruning(set()).block(tuple(body), wanted)[1] - wanted


class _Pruning:
    """One pass, backwards, with the set of locals that are still read."""

    def __init__(self, idle: set[str]) -> None:
        self.idle = idle
        self.after_break: list[set[str]] = []
        self.after_continue: list[set[str]] = []

    def block(self, body: Block, live: set[str], *, ends_iteration: bool = False) -> tuple[Block, set[str]]:
        """A block without what has no effect, and the locals that it reads; `live` are read after it."""
        kept: list[nodes.Stmt] = []
        for statement in reversed(body):
            found, live = self.statement(statement, live, ends_iteration and not kept)
            if found is not None:
                kept.append(found)
        return tuple(reversed(kept)), live

    def statement(self, one: nodes.Stmt, live: set[str], ends_iteration: bool) -> tuple[nodes.Stmt | None, set[str]]:
        match one:
            case nodes.Assign() | nodes.Draw() | nodes.Decompose():
                given = walk.assigned(one)
                if live.isdisjoint(given):
                    return None, live
                return one, live.difference(given) | walk.locals_in(walk.expressions(one))
            case nodes.Store():
                if one.array in self.idle:
                    return None, live
                return one, live | walk.locals_in(walk.expressions(one))
            case nodes.Atomic():
                return self.atomic(one, live)
            case nodes.If():
                return self.branch(one, live, ends_iteration)
            case nodes.For():
                return self.loop(one, live)
            case nodes.While():
                return self.endless(one, live)
            case nodes.Break():
                return one, set(self.after_break[-1])
            case nodes.Continue() if ends_iteration:
                # Kept, it would keep the branch around it, and what that reads: a tangent would ask for arrays
                # that the adjoint, where a continue is a branch around nothing, has not saved.
                return None, live
            case _:  # another `continue`
                return one, set(self.after_continue[-1])

    def atomic(self, one: nodes.Atomic, live: set[str]) -> tuple[nodes.Stmt | None, set[str]]:
        is_read = one.result is not None and one.result in live
        if one.array in self.idle and not is_read:
            return None, live
        kept = one if is_read else replace(one, result=None)
        return kept, (live - set(walk.assigned(kept))) | walk.locals_in(walk.expressions(one))

    def branch(self, one: nodes.If, live: set[str], ends_iteration: bool) -> tuple[nodes.Stmt | None, set[str]]:
        body, before = self.block(one.body, live, ends_iteration=ends_iteration)
        orelse, otherwise = self.block(one.orelse, live, ends_iteration=ends_iteration)
        if not body and not orelse:
            return None, live
        read = before | otherwise | walk.locals_in([one.condition])
        if not body:
            return nodes.If(_denied(one.condition), orelse, (), one.line), read
        return replace(one, body=body, orelse=orelse), read

    def loop(self, one: nodes.For, live: set[str]) -> tuple[nodes.Stmt | None, set[str]]:
        body, before = self.settled(one.body, live)
        if not _is_felt(body, live):
            return None, live
        read = live | (before - set(one.names)) | walk.locals_in(walk.expressions(one))
        return replace(one, body=body), read

    def endless(self, one: nodes.While, live: set[str]) -> tuple[nodes.Stmt | None, set[str]]:
        body, before = self.settled(one.body, live)
        if not _is_felt(body, live):
            return None, live
        return replace(one, body=body), live | before

    def settled(self, body: Block, live: set[str]) -> tuple[Block, set[str]]:
        """A loop's body: what one iteration reads, the one before it must leave."""
        after = set(live)
        while True:
            self.after_break.append(live)
            self.after_continue.append(after)
            kept, before = self.block(body, after, ends_iteration=True)
            self.after_break.pop()
            self.after_continue.pop()
            if before <= after:
                return kept, before
            after = after | before


def _is_felt(body: Block, live: set[str]) -> bool:
    """Whether a loop changes memory, or a local that is read after it. That it never ends is no effect."""
    return any(
        isinstance(one, nodes.Store | nodes.Atomic) or not live.isdisjoint(walk.assigned(one))
        for one in walk.statements(body)
    )


def _denied(condition: nodes.Expr) -> nodes.Expr:
    if isinstance(condition, nodes.Unary) and condition.operator == "not":
        return condition.value
    return nodes.Unary("not", condition, "u1")
