"""Branches nested less deeply than Python's parser allows.

Python refuses text with a hundred levels of indentation, which an `elif` chain of a hundred branches takes where each
condition is computed by a statement of its own. Where statements nest deeper, a local says whether a branch runs.

    if p:                                  runs_1 = False
        a = f(a)                           runs = p
        q = a > 1.0                        if runs:
        if q:                  ->              a = f(a)
            <many levels>                      q = a > 1.0
        b = g(a)                               runs_1 = q
                                           if runs_1:
                                               <many levels>
                                           if runs:
                                               b = g(a)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ir import Names, Type, nodes, opposite, walk
from .polish import declare_locals

MOST_LEVELS = 90
"""Levels of indentation inside a kernel. Python allows 97; printing may add a few of its own."""


def limit_nesting(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return the kernel with at most `MOST_LEVELS` of nested branches; the same object if it nests no deeper."""
    levels = _measure_levels(kernel.body)
    if all(levels[id(one)] <= MOST_LEVELS for one in kernel.body):
        return kernel
    names = Names.of_kernel(kernel)
    body = _Flattening(names, levels).block(kernel.body, MOST_LEVELS)
    # A local of a branch that is now several blocks is declared around all of them, and so are the new ones: as False.
    return replace(kernel, body=declare_locals(body, names.types), locals=names.types)


def _measure_levels(body: nodes.Block) -> dict[int, int]:
    """Return how many levels of indentation are inside each statement, by its identity."""
    levels: dict[int, int] = {}
    # Those inside a statement come after it in the text: backwards, they are known when it is reached.
    for one in reversed([*walk.statements(body)]):
        inside = [1 + max((levels[id(inner)] for inner in block), default=0) for block in walk.bodies(one)]
        if isinstance(one, nodes.If) and len(one.orelse) == 1 and isinstance(one.orelse[0], nodes.If):
            # A branch alone behind `else` is an `elif`.
            inside[-1] -= 1
        levels[id(one)] = max(inside, default=0)
    return levels


@dataclass(frozen=True)
class _Flattening:
    """Rewrites blocks.

    Attributes:
        names: gives names to the locals that say whether a branch runs.
        levels: how many levels are inside each statement of the kernel, by its identity.
    """

    names: Names
    levels: dict[int, int]

    def block(self, body: nodes.Block, room: int) -> nodes.Block:
        """Rewrite statements so that they nest at most `room` levels."""
        return tuple(new for one in body for new in self.statement(one, room))

    def statement(self, one: nodes.Stmt, room: int) -> Iterator[nodes.Stmt]:
        if self.levels[id(one)] <= room:
            yield one
        elif isinstance(one, nodes.If):
            starts, arms = self.start_arms(one)
            yield from starts
            for runs, body in arms:
                yield from self.guard(runs, body, one.line, room)
        else:
            yield walk.with_bodies(one, lambda body: self.block(body, room - 1))

    def start_arms(self, one: nodes.If) -> tuple[list[nodes.Stmt], list[tuple[nodes.Local, nodes.Block]]]:
        """Return the assignments that decide which arm of a branch runs, and the arms with their decisions."""
        runs = self.names.local("runs", Type.U1)
        starts: list[nodes.Stmt] = [nodes.Assign(runs.name, one.condition, one.line)]
        arms = [(runs, one.body)]
        if one.orelse:
            # Computed before the first arm runs, which may change what the condition reads.
            otherwise = self.names.local("runs", Type.U1)
            starts.append(nodes.Assign(otherwise.name, opposite(runs), one.line))
            arms.append((otherwise, one.orelse))
        return starts, arms

    def guard(self, runs: nodes.Local, body: nodes.Block, line: int, room: int) -> Iterator[nodes.Stmt]:
        """Yield statements that together run a block if the local `runs` is true, and nest at most `room` levels."""
        together: list[nodes.Stmt] = []
        for one in body:
            if not isinstance(one, nodes.If) or self.levels[id(one)] < room:
                together += self.statement(one, room - 1)
                continue
            starts, arms = self.start_arms(one)
            yield nodes.If(runs, (*together, *starts), (), line)
            together = []
            for inner, block in arms:
                yield from self.guard(inner, block, one.line, room)
        if together:
            yield nodes.If(runs, tuple(together), (), line)
