"""Forward copies of steps: they run only to reach a later state, with locals of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir import Names, nodes, walk
from .._ssa import Step

Renamed = dict[str, nodes.Expr]
Block = list[nodes.Stmt]
Changed = Callable[[nodes.Store | nodes.Atomic, Renamed], Block]
"""What takes the place of a change of memory, whose locals have been renamed already; and what locals are called."""
Inside = Callable[[Renamed], Block]
"""Statements for the head or the end of an iteration, from what its locals are called."""


class ForwardCopy:
    """Copies steps as statements.

    Args:
        names: where the copies' locals get their names.
        changed: what becomes of stores.
    """

    def __init__(self, names: Names, changed: Changed) -> None:
        self.names = names
        self.changed = changed

    def block(self, body: Sequence[Step], renamed: Renamed) -> Block:
        """Copy steps as statements. `renamed` is extended by the new names of their locals."""
        statements: Block = []
        for step in body:
            statements += self.step(step, renamed)
        return statements

    def step(self, step: Step, renamed: Renamed) -> Block:
        if isinstance(step, nodes.Loop):
            return self.loop(step, renamed)
        copy = walk.with_expressions(step, lambda expr: walk.substitute(expr, renamed))
        if isinstance(copy, nodes.Store | nodes.Atomic):
            return self.changed(copy, renamed)
        copy = walk.rename_results(copy, lambda name: self.name(name, renamed))
        return [walk.with_bodies(copy, lambda body: tuple(self.block(body, renamed)))]

    def name(self, local: str, renamed: Renamed) -> str:
        """Return the name of a local in this copy; create it at the first request."""
        known = renamed.get(local)
        if isinstance(known, nodes.Local):
            return known.name
        name = self.names.like(local)
        renamed[local] = nodes.Local(name, self.names.types[local])
        return name

    def loop(self, loop: nodes.Loop, renamed: Renamed, head: Inside | None = None, tail: Inside | None = None) -> Block:
        """Copy a loop; `head` and `tail` return statements for the start and the end of an iteration."""
        for one in loop.names:
            self.name(one, renamed)
        before, first, last, after = self.move_carried(loop, renamed)
        body = [*first, *(head(renamed) if head else []), *self.block(loop.body, renamed), *last()]
        body += tail(renamed) if tail else []
        # Behind the tail: an iteration that ends the loop has run, and counts.
        if loop.exit is not None:
            body.append(nodes.If(walk.substitute(loop.exit, renamed), (nodes.Break(),)))
        return [*before, around(loop, body, renamed, self.name), *after]

    def move_carried(self, loop: nodes.Loop, renamed: Renamed) -> tuple[Block, Block, Callable[[], Block], Block]:
        """Return the assignments of carried locals: before a loop, at the start and end of an iteration, after it."""
        before: Block = []
        first: Block = []
        after: Block = []
        cells = []
        for one in loop.carried:
            kind = self.names.types[one.head]
            # The cell is what goes from one iteration to the next. The head stays as it was during the iteration, and
            # `last` is read only after the loop.
            cell = nodes.Local(self.name(one.cell, renamed), kind)
            before.append(nodes.Assign(cell.name, walk.substitute(one.first, renamed)))
            first.append(nodes.Assign(self.name(one.head, renamed), cell))
            cells.append((cell, one))
        for cell, one in cells:
            after.append(nodes.Assign(self.name(one.last, renamed), cell))

        # Written when the body is: only then are the names of the next values known.
        def last() -> Block:
            return [nodes.Assign(cell.name, walk.substitute(one.next, renamed)) for cell, one in cells]

        return before, first, last, after


def around(
    loop: nodes.Loop, body: Sequence[nodes.Stmt], renamed: Renamed, name: Callable[[str, Renamed], str]
) -> nodes.Stmt:
    """Return the loop around the statements of an iteration."""
    if not loop.names:
        return nodes.While(tuple(body), loop.line)
    bounds = tuple((walk.substitute(a, renamed), walk.substitute(b, renamed)) for a, b in loop.bounds)
    return nodes.For(tuple(name(one, renamed) for one in loop.names), bounds, tuple(body), line=loop.line)
