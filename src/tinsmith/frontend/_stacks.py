"""Compute the depth that an engine's gradient stack needs for a kernel's locals.

Reversing `p = p * x[j]` needs every old `p`. Taichi 1.7.4 keeps them on a stack of 32 where it does not know the trip
count, and writes the 33rd past its end: the process dies (taichi #8027). The depth that is needed follows from the
bounds of the loops, which a call's sizes give.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..engines import walk
from ._bounds import Bounds
from ._definitions import Loop, find_assigned_names
from ._effects import changes_of
from ._loops import Spot, is_static
from ._nodes import names_in, root
from ._read import Source

Loops = tuple[Loop, ...]


@dataclass(frozen=True)
class Nest:
    """Nested loops in which a local is assigned whose old values the gradient needs.

    `sites` are the loops around each assignment, without the outermost, whose iterations share nothing.
    `is_aside` says that the local itself is not kept, but intermediate values of a loop that uses it.
    """

    source: Source
    local: str
    sites: tuple[Loops, ...]
    is_aside: bool = False

    @property
    def place(self) -> str:
        return self.source.place(max(self.sites, key=len)[-1])

    def depth(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> int | None:
        """Return the number of entries that the stack needs; None if a bound is unknown before the launch.

        It needs one for each assignment that runs, and one for the value at the start of each iteration of an outer
        loop.
        """
        bounds = Bounds(self.source, shapes, values)
        total = 1
        for site in self.sites:
            trips, before = 1, 1
            for loop in site:
                count = bounds.trips(loop)
                if count is None:
                    return None
                trips, before = trips * count, trips
            total += trips + before
        return total


def carrying_nests(source: Source, needed: frozenset[str], arrays: frozenset[str] = frozenset()) -> tuple[Nest, ...]:
    """Return the nests of inner loops for whose locals an engine keeps old values.

    These are the locals that a loop carries from one iteration to the next, and all that are assigned between two inner
    loops: they were seen to pile up over the iterations of the outer one as soon as something is added to an array
    there. A loop that uses a local from outside keeps the intermediate values of every iteration, even those of a plain
    sum `s += x[j] * x[j]`. So does a loop beside an element of an array with a gradient.

    Args:
        source: the kernel.
        needed: locals whose values its reverse pass reads.
        arrays: those with a gradient.
    """
    sites: dict[str, list[Loops]] = {}
    for loops, statement, is_kept in _assignments(source.tree.body, (), is_top=True):
        # Sorted: the order of a set of strings differs from run to run, and messages name the first.
        for name in sorted(find_assigned_names(statement) & needed):
            if is_kept or _is_carried(name, loops):
                sites.setdefault(name, []).append(loops)
    nests = [Nest(source, name, tuple(group)) for name, group in sites.items() if any(map(_has_loop, group))]
    named = {id(site[-1]) for nest in nests for site in nest.sites if site}
    used = ((name, loops) for statement in source.tree.body for name, loops in _using(statement, arrays))
    return (
        *nests,
        *(
            Nest(source, name, (loops,) * _count_pushes(loops[-1], needed), is_aside=True)
            for name, loops in used
            if id(loops[-1]) not in named
        ),
    )


def _count_pushes(loop: Loop, needed: frozenset[str]) -> int:
    """Return how many values of one local an iteration may put on its stack: one for each assignment, and a zero where
    the local is declared; 1 without locals.
    """
    names = [name for one in walk(loop) if isinstance(one, ast.stmt) for name in find_assigned_names(one) & needed]
    return 1 + max(map(names.count, names), default=0)


def _using(task: ast.stmt, arrays: frozenset[str]) -> Iterator[tuple[str, Loops]]:
    """Yield, for each inner loop that uses a local assigned outside of it, the local and the chain of loops.

    The chain begins with the outermost loop and ends with the loop that uses the local. For a loop beside an element of
    one of `arrays`, yield that array: Taichi 1.7.4 then reverses the iterations of the loop around as a whole.
    """
    assignments = _assignments([task], (), is_top=True)
    given = [(name, around) for around, statement, _ in assignments for name in sorted(find_assigned_names(statement))]
    elements = [
        (place, name, around)
        for place, (around, statement, _) in enumerate(assignments)
        for name in sorted(_find_elements(statement) & arrays)
    ]
    for around, loop, _ in assignments:
        if not isinstance(loop, ast.For) or is_static(loop) or loop is task:
            continue
        own = (*around, loop)
        inside = {node.id for statement in loop.body for node in walk(statement) if isinstance(node, ast.Name)}
        # The local is assigned outside this loop if the loops around the assignment are among those around the loop.
        outside = (name for name, where in given if name in inside and where == around[: len(where)])
        # Taichi takes what follows a loop inside of this one for outside of this one.
        nested = (place for place, (where, one, _) in enumerate(assignments) if where == own and _has_loop((one,)))
        first = next(nested, len(assignments))
        beside = (
            name for place, name, where in elements if where == around[: len(where)] or (where == own and place > first)
        )
        name = next(outside, "") or next(beside, "")
        if name:
            yield name, own


def _find_elements(statement: ast.stmt) -> frozenset[str]:
    """Return the arrays of which a statement itself, without those inside it, uses elements."""
    expressions = Spot(statement, (), ()).expressions
    return frozenset(root(one) for one in expressions if isinstance(one, ast.Subscript))


def _assignments(body: list[ast.stmt], loops: Loops, *, is_top: bool) -> list[tuple[Loops, ast.stmt, bool]]:
    """Return all statements, each with the inner loops around it, and True if another loop is beside it in these."""
    rows: list[tuple[Loops, ast.stmt, bool]] = []
    beside = any(map(_holds_loop, body))
    for statement in body:
        if isinstance(statement, ast.For | ast.While):
            # Iterations of a parallel loop have stacks of their own, so the loop does not deepen one.
            is_parallel = is_top and isinstance(statement, ast.For) and not is_static(statement)
            inner = loops if is_parallel else (*loops, statement)
            rows += _assignments(statement.body, inner, is_top=is_top and is_static(statement))
        elif isinstance(statement, ast.If):
            rows += _assignments(statement.body + statement.orelse, loops, is_top=False)
        rows.append((loops, statement, beside and _has_loop(loops)))
    return rows


def _is_carried(name: str, loops: Loops) -> bool:
    """Return True if the innermost dynamic loop carries a local: its body does not define it without reading it."""
    dynamic = [loop for loop in loops if not is_static(loop)]
    return bool(dynamic) and not any(_makes(statement, name) for statement in dynamic[-1].body)


def _makes(statement: ast.stmt, name: str) -> bool:
    """Return True if a statement assigns a local without reading its old value."""
    plain = [one for one in changes_of(statement) if one.is_plain and isinstance(one.target, ast.Name)]
    is_target = any(root(one.target) == name for one in plain)
    return is_target and not any(name in names_in(one.value) for one in plain if one.value is not None)


def _holds_loop(statement: ast.stmt) -> bool:
    inside = (*getattr(statement, "body", ()), *getattr(statement, "orelse", ()))
    return _has_loop((statement,)) or any(map(_holds_loop, inside))


def _has_loop(nodes: tuple[ast.AST, ...]) -> bool:
    return any(isinstance(node, ast.For | ast.While) and not is_static(node) for node in nodes)
