"""Liveness: which locals are still read later, found by going backwards through statements."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import nodes, walk

Live = frozenset[str]


class Liveness:
    """One way backwards through statements. A pass says what it does on the way by overriding `plain` and `compound`.

    Each walk is by an instance of its own.

    Args:
        tracked: the locals that are looked at; left out, all of them.
    """

    def __init__(self, tracked: Live | None = None) -> None:
        self.tracked = tracked
        self.after_break: list[Live] = []
        self.after_continue: list[Live] = []
        self._loops = 0
        self._at_ends: dict[int, Live] = {}

    def block(self, body: nodes.Block, live: Live, *, is_last: bool = False) -> tuple[nodes.Block, Live]:
        """What a pass leaves of statements, and the locals that are live before them.

        Args:
            body: the statements.
            live: locals that are live after them.
            is_last: whether nothing comes after them in an iteration.
        """
        kept: list[nodes.Stmt] = []
        for one in reversed(body):
            if type(one) is nodes.Assign:
                # Most statements are assignments.
                left, live = self.plain(one, live)
            else:
                left, live = self.statement(one, live, is_last and not kept)
            if left is not None:
                kept.append(left)
        kept.reverse()
        return walk.keep_block(body, kept), live

    def statement(self, one: nodes.Stmt, live: Live, is_last: bool) -> tuple[nodes.Stmt | None, Live]:
        """One of them: what is left of it, and the locals that are live before it."""
        match one:
            case nodes.If():
                body, before = self.block(one.body, live, is_last=is_last)
                orelse, otherwise = self.block(one.orelse, live, is_last=is_last)
                return self.compound(one, (body, orelse), before | otherwise | self.reads(one), live)
            case nodes.For():
                body, before = self.loop(one.body, live, live)
                return self.compound(one, (body,), live | before.difference(one.names) | self.reads(one), live)
            case nodes.Loop():
                return self._loop_in_ssa(one, live)
            # A `while` ends by `break` alone: nothing is live at the end of its body but what the next iteration reads.
            case nodes.While():
                body, before = self.loop(one.body, live, frozenset())
                return self.compound(one, (body,), before, live)
            case nodes.Break():
                return one, self.after_break[-1]
            case nodes.Continue() if is_last:
                return self.compound(one, (), live, live)
            case nodes.Continue():
                return one, self.after_continue[-1]
            case _:
                return self.plain(one, live)

    def _loop_in_ssa(self, one: nodes.Loop, live: Live) -> tuple[nodes.Stmt | None, Live]:
        """A loop in SSA form: what it hands on, and whether it ends, is computed at the end of an iteration."""
        own = {*one.names, *(carried.head for carried in one.carried)}
        after = live.difference(carried.last for carried in one.carried)
        asked = frozenset(walk.locals_in(walk.inner_expressions(one)))
        body, before = self.loop(one.body, after, after | asked, lambda _, before: before.difference(own))
        first = frozenset(walk.locals_in(walk.outer_expressions(one)))
        return self.compound(one, (body,), after | before.difference(own) | first, live)

    def loop(
        self,
        body: nodes.Block,
        after: Live,
        at_end: Live,
        carry: Callable[[nodes.Block, Live], Live] = lambda body, before: before,
    ) -> tuple[nodes.Block, Live]:
        """A loop's body: what one iteration reads, the one before it must leave.

        Args:
            body: the statements.
            after: what is live after the loop.
            at_end: what of it is live where an iteration ends.
            carry: what iterations ask of each other, from what is left of the body and is live before it.
        """
        # A loop inside is walked again for each pass over this one, each time with more locals live than before: what
        # it settled at last time is where it starts. Otherwise nests would take time exponential in their depth.
        number = self._loops
        at_end |= self._at_ends.get(number, frozenset())
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
            at_end |= carried

    def reads(self, one: nodes.Stmt) -> frozenset[str]:
        """Of the tracked locals, those that a statement reads itself."""
        names = walk.locals_read(one)
        return names if self.tracked is None else names & self.tracked

    def plain(self, one: nodes.Stmt, live: Live) -> tuple[nodes.Stmt | None, Live]:
        """A statement without others inside it; None leaves it out."""
        return one, live.difference(walk.find_assigned(one)) | self.reads(one)

    def compound(
        self, one: nodes.Stmt, bodies: tuple[nodes.Block, ...], before: Live, live: Live
    ) -> tuple[nodes.Stmt | None, Live]:
        """A statement with what is left of those inside it, or a `continue` that skips nothing; None leaves it out."""
        return one, before


class _PrivateLoops(Liveness):
    """Collects the numbers of loops, as `find_private_loops` gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.is_private: dict[int, bool] = {}

    def compound(
        self, one: nodes.Stmt, bodies: tuple[nodes.Block, ...], before: Live, live: Live
    ) -> tuple[nodes.Stmt | None, Live]:
        inner = (nodes.For, nodes.While, nodes.Break, nodes.Continue)
        if isinstance(one, nodes.For) and not any(isinstance(part, inner) for part in walk.statements(one.body)):
            given = walk.find_defined([one])
            exposed = Liveness().block(one.body, frozenset())[1].difference(one.names)
            self.is_private[one.number] = given.isdisjoint(live | exposed)  # the last visit knows all that is live
        return one, before


def find_private_loops(body: nodes.Block) -> frozenset[int]:
    """Numbers of innermost loops without jumps whose locals neither another iteration nor a later statement reads.

    Each statement has a number of its own (`walk.number_statements`).
    """
    loops = _PrivateLoops()
    loops.block(body, frozenset())
    return frozenset(number for number, is_private in loops.is_private.items() if is_private)
