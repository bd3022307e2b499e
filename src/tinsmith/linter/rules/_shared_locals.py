"""TS105 for locals: one that is defined outside a parallel loop is shared by all of its iterations."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source import assignments, find_carried, names_in, root, runs_once, tasks
from .._finding import Finding
from .._subject import Subject

_ATOMIC = (ast.Add, ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)
"""What `s op= value` does atomically, on both engines."""


def racing_locals(subject: Subject) -> Iterator[Finding]:
    """TS105: only what must go wrong; a branch may keep iterations apart."""
    if not subject.is_kernel:
        return
    seen: set[str] = set()
    outer: set[str] = set()
    parallel = {loop for loop, is_serial in tasks(subject.tree.body) if not is_serial and not runs_once(loop)}
    for statement in subject.tree.body:
        if isinstance(statement, ast.For) and statement in parallel:
            handed = outer & find_carried(statement).keys()  # not those that each iteration gives a value first
            yield from _racing(subject, statement, handed - seen, seen)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            outer |= {root(target) for target, _ in assignments(statement)}


def _racing(subject: Subject, loop: ast.For, shared: set[str], seen: set[str]) -> Iterator[Finding]:
    for spot in subject.spots:
        is_atomic = isinstance(spot.statement, ast.AugAssign) and isinstance(spot.statement.op, _ATOMIC)
        if not spot.loops or spot.loops[0] is not loop or spot.guards or is_atomic:
            continue
        for target, value in spot.assignments:
            if isinstance(target, ast.Name) and target.id in (shared - seen) & names_in(value):
                seen.add(target.id)
                words = f"every iteration over `{subject.text(loop.target)}` changes the local `{target.id}` of the "
                words += "top level from its own value: some of the changes are lost, by chance"
                remedy = f"{target.id} += ...  # additions of parallel iterations are atomic"
                yield subject.finding("TS105", "error", spot.statement, words, remedy)
