"""Uniformity: which statements of a block run once for all of its lanes, because no lane could do otherwise.

A barrier may only stand where all lanes of a block reach it together. What decides over it, the condition of a branch
or the bounds of a loop around it, has to be the same for all of them: made of sizes, arguments, the block's number, and
what is read from memory at a place that is the same for all. Such statements are at the level of the block, and what
gives their locals a value is too. Everything else is a lane's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...analyses import affine, definitions, single_definitions
from ...ir import NotCovered, Operator, Type, constant, nodes, plus, times, walk
from ._layout import BlockLayout

Block = Sequence[nodes.Stmt]
Compound = nodes.If | nodes.For | nodes.While
_ALIKE = (
    "Rewrite that line so that all iterations of a block reach the same `sync()` the same number of times: "
    "conditions and bounds around one may depend on the block (`i // block_dim`), on sizes and on arguments"
)
"""The remedy for a barrier that iterations may not reach together."""


class BlockLevel:
    """The statements of a parallel loop's body that are at the level of the block.

    Attributes:
        locals: locals that have one value for the whole block.
        given: at how many places of the body each local gets a value.
        pure: locals that each lane may compute again wherever it needs them, and from what.
    """

    def __init__(self, layout: BlockLayout, body: Block, kernel: nodes.Kernel) -> None:
        self.layout = layout
        self.body = body
        self.kernel = kernel
        self.given = Counter(name for name, _ in definitions(body))
        self.pure = self._find_pure()
        self.locals = {one.result for one in walk.statements(body) if isinstance(one, nodes.Vote)}
        self._numbers: set[int] = set()
        self._expanded: dict[str, nodes.Expr] = {}
        self._settle()
        self._check()

    def has(self, one: nodes.Stmt) -> bool:
        """Return True if the block as a whole runs a statement, instead of each lane by itself."""
        return one.number in self._numbers

    # Expressions ------------------------------------------------------------------------------

    def form(self, expr: nodes.Expr) -> nodes.Expr | None:
        """Return an expression in terms of the block alone; None if lanes may differ in it."""
        uniform = self._without_lanes(self.layout.rewrite_in_blocks(self._expand(expr)))
        return None if self._has_lane(uniform) else uniform

    def _has_lane(self, expr: nodes.Expr) -> bool:
        return self.layout.lane in walk.parts(expr)

    def _expand(self, expr: nodes.Expr) -> nodes.Expr:
        """Replace the loop's variables, and locals that are computed from lanes, by what they are computed from."""
        expr = self.layout.rewrite_in_blocks(expr)
        if not isinstance(expr, nodes.Local):
            return walk.rebuild(expr, self._expand)
        if expr.name in self.layout.variables:
            return self.layout.variables[expr.name]
        if expr.name not in self.pure:
            return expr
        if expr.name not in self._expanded:
            self._expanded[expr.name] = self._without_lanes(self._expand(self.pure[expr.name]))
        # A local without lanes stays: the block computes it once, and need not compute it again.
        expanded = self._expanded[expr.name]
        return expanded if self._has_lane(expanded) else expr

    def _without_lanes(self, expr: nodes.Expr) -> nodes.Expr:
        """Rewrite a sum in which the lane cancels out, `i - i % 64`, without it."""
        if not self._has_lane(expr):
            return expr
        if isinstance(expr, nodes.Binary) and expr.operator in (Operator.ADD, Operator.SUB) and expr.type == Type.I32:
            index = affine(expr, {})
            keys = [nodes.Local(key, Type.I32) if isinstance(key, str) else key for key in index.terms]
            if not any(self._has_lane(key) for key in keys):
                total: nodes.Expr = constant(index.constant, Type.I32)
                for part, factor in zip(keys, index.terms.values(), strict=True):
                    total = plus(total, times(constant(factor, Type.I32), part))
                return total
        return walk.rebuild(expr, self._without_lanes)

    def _find_pure(self) -> dict[str, nodes.Expr]:
        # What reads memory may be another number when it is computed again, and so may what is made of a local that
        # has several values. A local of another type than its value converts it.
        return {
            name: value
            for name, value in single_definitions(definitions(self.body)).items()
            if value.type == self.kernel.locals[name]
            and not walk.reads_memory(value)
            and all(self.given[one] <= 1 for one in walk.locals_in([value]))
        }

    # Levels -----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Find the statements: what is needed to decide over one of them is one of them too."""
        # Locals of marked statements are the block's, which marks the statements that assign these, and so on.
        while True:
            before = len(self._numbers), len(self.locals)
            self._mark(self.body, is_tail=True)
            for one in self._find_marked():
                # What lanes vote is their own.
                for expr in () if isinstance(one, nodes.Vote) else walk.expressions(one):
                    form = self.form(expr)
                    self.locals |= walk.locals_in([self._expand(expr) if form is None else form])
                if isinstance(one, nodes.For):
                    self.locals |= {*one.names}
            self.locals -= {self.layout.block.name, self.layout.lane.name}
            if before == (len(self._numbers), len(self.locals)):
                return

    def _find_marked(self) -> Iterator[nodes.Stmt]:
        return (one for one in walk.statements(self.body) if self.has(one))

    def _mark(self, body: Block, *, is_tail: bool, is_inside: bool = True) -> bool:
        """Mark statements of the block's level. Return True if there is one.

        Args:
            body: the statements.
            is_tail: whether a lane that leaves them with `continue` misses nothing but lanes' own statements.
            is_inside: whether the loop around them is at the level of the block.
        """
        is_any_marked = False
        for place, one in enumerate(body):
            rest = body[place + 1 :]
            tail = is_tail and not any(self.has(other) for other in rest)
            if self._is_marked(one, rest, is_tail=tail, is_inside=is_inside):
                self._numbers.add(one.number)
                is_any_marked = True
        return is_any_marked

    def _is_marked(self, one: nodes.Stmt, rest: Block, *, is_tail: bool, is_inside: bool) -> bool:
        match one:
            case nodes.Barrier() | nodes.Vote():
                return True
            case nodes.Break():
                return is_inside
            case nodes.Continue():
                return is_inside and not is_tail
            case nodes.If():
                # Behind one at the level of the block another loop over the lanes begins.
                tail = is_tail and not (self.has(one) and rest)
                marks = [self._mark(part, is_tail=tail, is_inside=is_inside) for part in walk.bodies(one)]
                return any(marks)
            case nodes.For() | nodes.While():
                return self._mark(one.body, is_tail=True, is_inside=self.has(one))
            case _:
                return not self.locals.isdisjoint(walk.find_assigned(one))

    # Refusals ---------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise NotCovered, with the barrier's line, for a statement that lanes may not run alike."""
        differing: set[str] = set()
        while True:
            before = len(differing)
            self._propagate_differing(self.body, differing, "")
            if len(differing) == before:
                break
        for one in walk.statements(self.body):
            if isinstance(one, nodes.If | nodes.For | nodes.While) and self.has(one):
                culprits = (self._culprit(expr, differing) for expr in walk.expressions(one))
                culprit = next(filter(None, culprits), "")
                if culprit and self._find_held_up(one) is not None:
                    raise self._make_refusal(one, culprit)
        if differing:
            first = next(one for one in self._find_marked() if differing.intersection(walk.find_assigned(one)))
            words = (
                f"`{self.kernel.source_name(min(differing))}`, which decides whether a "
                "`sync()` runs and may differ in a block"
            )
            raise NotCovered(words, first.line, self.kernel.path, remedy=_ALIKE)

    def _propagate_differing(self, body: Block, differing: set[str], around: str) -> None:
        """Add to `differing` the locals, assigned by block-level statements, whose values may differ between lanes."""
        for one in body:
            if not self.has(one):
                continue
            inside = around
            if isinstance(one, nodes.If | nodes.For | nodes.While):
                inside = around or next(filter(None, (self._culprit(e, differing) for e in walk.expressions(one))), "")
            elif not isinstance(one, nodes.Vote):
                is_alike = isinstance(one, nodes.Assign) and not self._culprit(one.value, differing)
                if not is_alike or around:
                    differing.update(walk.find_assigned(one))
            for part in walk.bodies(one):
                self._propagate_differing(part, differing, inside)

    def _culprit(self, expr: nodes.Expr, differing: set[str]) -> str:
        """Return the name of a local that makes an expression differ from lane to lane; "" if it does not differ."""
        form = self.form(expr)
        wanted = walk.locals_in([expr] if form is None else [form])
        bad = sorted(wanted & differing)
        if bad:
            return bad[0]
        if form is not None:
            return ""
        names = (name for name in sorted(wanted) if self.form(nodes.Local(name, Type.I32)) is None)
        return next(names, self.layout.loop.names[-1])

    def _find_held_up(self, one: Compound) -> nodes.Barrier | nodes.Vote | nodes.Break | nodes.Continue | None:
        """Return what inside a statement all lanes of a block have to reach together; None if nothing."""
        inside = [other for other in walk.statements([one]) if self.has(other)]
        waiting = (other for other in inside if isinstance(other, nodes.Barrier | nodes.Vote))
        leaving = (other for other in inside if isinstance(other, nodes.Break | nodes.Continue))
        return next(waiting, None) or next(leaving, None)

    def _make_refusal(self, one: Compound, culprit: str) -> NotCovered:
        held = self._find_held_up(one)
        leaving = {nodes.Break: "`break` before a `sync()`", nodes.Continue: "`continue` before a `sync()`"}
        what = leaving.get(type(held), "`sync()`")
        where = f"under the `if` of line {one.line}" if isinstance(one, nodes.If) else f"in the loop of line {one.line}"
        line = one.line if held is None else held.line or one.line
        name = self.kernel.source_name(culprit)
        words = (
            f"{what} {where}, which not all iterations of a block run the same number of times: "
            f"`{name}` differs between them"
        )
        return NotCovered(words, line, self.kernel.path, remedy=_ALIKE)

    def check_order(self) -> None:
        """Raise NotCovered if the block reads memory that a lane may have changed since the last barrier.

        Each lane would read it for itself on a GPU, some before and some after the change.
        """
        self._follow(self.body, frozenset(), [])

    def _follow(self, body: Block, changed: frozenset[str], left: list[frozenset[str]]) -> frozenset[str]:
        """Return the arrays that lanes changed since the last barrier, after statements.

        `left` gets those at each `break` and `continue`.
        """
        for one in body:
            if not self.has(one):
                changed |= walk.find_changed([one])
                continue
            for load in walk.parts(*walk.expressions(one)):
                if isinstance(load, nodes.Load) and load.array in changed:
                    name = self.kernel.source_name(load.array)
                    words = (
                        f"`{name}`, which decides whether a `sync()` runs, read while other iterations may store to it"
                    )
                    raise NotCovered(words, one.line, self.kernel.path, remedy="Put a `sync()` before that line")
            match one:
                case nodes.Barrier() | nodes.Vote():
                    changed = frozenset()
                case nodes.Break() | nodes.Continue():
                    left.append(changed)
                case nodes.If():
                    changed = self._follow(one.body, changed, left) | self._follow(one.orelse, changed, left)
                case nodes.For() | nodes.While():
                    # Twice, since what an iteration leaves is there in the next.
                    for _ in range(2):
                        ends: list[frozenset[str]] = []
                        changed |= self._follow(one.body, changed, ends)
                        changed = changed.union(*ends)
        return changed
