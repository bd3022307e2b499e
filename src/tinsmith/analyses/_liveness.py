"""Liveness: which locals are still read later, found by going backwards through statements."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from ..ir import nodes, walk

Live = set[str]


class Liveness:
    """Liveness analysis: visits statements from last to first. Subclasses override `plain` and `compound`.

    One set of live locals is changed from statement to statement. Inside a branch or a loop it has only those locals
    that the statement mentions, so that the time is linear in the number of statements, however many locals are live.

    Each walk is by an instance of its own.

    Args:
        tracked: the locals that are looked at; left out, all of them.
    """

    def __init__(self, tracked: AbstractSet[str] | None = None) -> None:
        self.tracked = tracked
        self.after_break: list[AbstractSet[str]] = []
        self.after_continue: list[AbstractSet[str]] = []
        self._loops = 0
        self._at_ends: dict[int, Live] = {}

    def block(self, body: nodes.Block, after: AbstractSet[str], *, is_last: bool = False) -> tuple[nodes.Block, Live]:
        """Return what a pass leaves of statements, and the locals that are live before them.

        Args:
            body: the statements.
            after: locals that are live after them.
            is_last: whether nothing comes after them in an iteration.
        """
        live = set(after)
        kept: list[nodes.Stmt] = []
        for one in reversed(body):
            if type(one) is nodes.Assign:
                # Most statements are assignments.
                left = self.plain(one, live)
            else:
                # A statement is also the last one if nothing behind it was kept.
                left = self.statement(one, live, is_last and not kept)
            if left is not None:
                kept.append(left)
        kept.reverse()
        return walk.keep_block(body, kept), live

    def statement(self, one: nodes.Stmt, live: Live, is_last: bool) -> nodes.Stmt | None:
        """Return what is left of a statement. Changes `live` from what is live after it to what is live before it."""
        match one:
            case nodes.If():
                return self._branch(one, live, is_last)
            case nodes.For():
                return self.counted_loop(one, live)
            case nodes.Loop():
                return self._ssa_loop(one, live)
            case nodes.While():
                # It ends by `break` alone: nothing is live at the end of its body but what the next iteration reads.
                body, before = self.loop(one.body, live.copy(), frozenset())
                left = self.compound(one, (body,), live)
                if left is not None:
                    _replace(live, before)
                return left
            case nodes.Continue() if is_last:
                return self.compound(one, (), live)
            case nodes.Break():
                _replace(live, self.after_break[-1])
                return one
            case nodes.Continue():
                _replace(live, self.after_continue[-1])
                return one
            case _:
                return self.plain(one, live)

    def _branch(self, one: nodes.If, live: Live, is_last: bool) -> nodes.Stmt | None:
        # Where a branch may leave the loop, not everything that is live after it is live before it.
        inner = live.copy() if walk.has_exits(one) else self.enter(one, live)
        body, before = self.block(one.body, inner, is_last=is_last)
        orelse, otherwise = self.block(one.orelse, inner, is_last=is_last)
        left = self.compound(one, (body, orelse), live)
        if left is not None:
            # Inside, only `inner` was known: the rest of `live` passes by unchanged.
            live -= inner
            live.update(before, otherwise, self.reads(one))
        return left

    def counted_loop(
        self,
        one: nodes.For | nodes.Loop,
        live: Live,
        carry: Callable[[nodes.Block, Live], Live] = lambda body, before: before,
    ) -> nodes.Stmt | None:
        """Return what is left of a loop that hands nothing on. The arguments are those of `statement` and `loop`."""
        inner = self.enter(one, live)
        body, before = self.loop(one.body, inner, inner, carry)
        left = self.compound(one, (body,), live)
        if left is not None:
            # The loop may have no iteration, so that what is live after it stays live before it.
            live.update(before.difference(one.names), self.reads(one))
        return left

    def _ssa_loop(self, one: nodes.Loop, live: Live) -> nodes.Stmt | None:
        # What it hands on, and whether it ends, is computed at the end of an iteration.
        own = {*one.names, *(carried.head for carried in one.carried)}
        handed = {carried.last for carried in one.carried}
        inner = self.enter(one, live) - handed
        asked = walk.locals_in(walk.inner_expressions(one))
        body, before = self.loop(one.body, inner, inner | asked, lambda _, before: before.difference(own))
        left = self.compound(one, (body,), live)
        if left is not None:
            live -= handed
            live.update(before.difference(own), walk.locals_in(walk.outer_expressions(one)))
        return left

    def loop(
        self,
        body: nodes.Block,
        after: AbstractSet[str],
        at_end: AbstractSet[str],
        carry: Callable[[nodes.Block, Live], Live] = lambda body, before: before,
    ) -> tuple[nodes.Block, Live]:
        """Return what is left of a loop's body, and what is live before it: live-ins are live at an iteration's end.

        Args:
            body: the statements.
            after: what is live after the loop.
            at_end: what of it is live where an iteration ends.
            carry: what iterations ask of each other, from what is left of the body and is live before it.
        """
        # A loop inside is walked again for each pass over this one, each time with more locals live than before: what
        # it settled at last time is where it starts. Otherwise nests would take time exponential in their depth.
        number = self._loops
        at_end = self._at_ends.get(number, set[str]()).union(at_end)
        while True:
            self._loops = number + 1
            self.after_break.append(after)
            self.after_continue.append(at_end)
            rewritten, before = self.block(body, at_end, is_last=True)
            self.after_break.pop()
            self.after_continue.pop()
            carried = carry(rewritten, before)
            if carried <= at_end:
                self._at_ends[number] = at_end
                return rewritten, before
            at_end = at_end | carried

    def enter(self, one: nodes.Stmt, live: Live) -> Live:
        """Return the locals to track inside a statement that contains others: of those live after it, the ones that it
        mentions.
        """
        return live & walk.mentioned_in(one)

    def reads(self, one: nodes.Stmt) -> AbstractSet[str]:
        """Return those of the tracked locals that a statement reads itself."""
        names = walk.locals_read(one)
        return names if self.tracked is None else names & self.tracked

    def plain(self, one: nodes.Stmt, live: Live) -> nodes.Stmt | None:
        """Return a statement without others inside it, or None to leave it out. Changes `live` as `statement` does."""
        live.difference_update(walk.find_assigned(one))
        live.update(self.reads(one))
        return one

    def compound(self, one: nodes.Stmt, bodies: tuple[nodes.Block, ...], live: Live) -> nodes.Stmt | None:
        """Return a statement with what is left of those inside it, or None to leave it out.

        It may also be a `continue` that skips nothing. `live` is what is live after it.
        """
        return one


def _replace(live: Live, others: AbstractSet[str]) -> None:
    live.clear()
    live.update(others)


class _PrivateLoops(Liveness):
    """Finds out for each innermost loop without jumps whether its locals are private to an iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.is_private: dict[int, bool] = {}

    def compound(self, one: nodes.Stmt, bodies: tuple[nodes.Block, ...], live: Live) -> nodes.Stmt | None:
        inner = (nodes.For, nodes.While, nodes.Break, nodes.Continue)
        if isinstance(one, nodes.For) and not any(isinstance(part, inner) for part in walk.statements(one.body)):
            given = walk.find_defined([one])
            # What the body reads before it gives it a value, of this loop alone: values from before the loop or from
            # the iteration before.
            exposed = Liveness().block(one.body, set())[1].difference(one.names)
            # The last visit of a loop knows all that is live.
            self.is_private[one.number] = given.isdisjoint(live | exposed)
        return one


def find_private_loops(body: nodes.Block) -> frozenset[int]:
    """Return the numbers of innermost loops without jumps whose locals no later statement or iteration reads.

    Each statement has a number of its own (`walk.number_statements`).
    """
    loops = _PrivateLoops()
    loops.block(body, set())
    return frozenset(number for number, is_private in loops.is_private.items() if is_private)
