"""TS105 for locals: one that stands outside of a parallel loop is the same for all of its iterations."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source import called, is_serialized, is_setting, is_static, iterated
from .._carried import carried
from .._finding import Finding
from .._subject import Subject
from .._walk import names_in

_ATOMIC = (ast.Add, ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)
"""What `s op= value` does atomically, on both engines."""


def racing_locals(subject: Subject) -> Iterator[Finding]:
    """TS105: only what must go wrong; a branch may keep iterations apart."""
    if not subject.is_kernel:
        return
    seen: set[str] = set()
    outer: set[str] = set()
    settings: list[ast.stmt] = []
    for statement in subject.tree.body:
        if isinstance(statement, ast.For) and not is_static(statement):
            if not any(map(is_serialized, settings)) and not _runs_once(statement):
                handed = outer & carried(statement).keys()  # not those that each iteration gives a value first
                yield from _racing(subject, statement, handed - seen, seen)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
            outer |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
        settings = [*settings, statement] if is_setting(statement) else []


def _racing(subject: Subject, loop: ast.For, shared: set[str], seen: set[str]) -> Iterator[Finding]:
    for spot in subject.spots:
        is_atomic = isinstance(spot.statement, ast.AugAssign) and isinstance(spot.statement.op, _ATOMIC)
        if not spot.loops or spot.loops[0] is not loop or spot.guards or is_atomic:
            continue
        for target, value in spot.pairs:
            if isinstance(target, ast.Name) and target.id in (shared - seen) & names_in(value):
                seen.add(target.id)
                words = f"every iteration over `{subject.text(loop.target)}` changes the local `{target.id}` of the "
                words += "top level from its own value: some of the changes are lost, by chance"
                remedy = f"{target.id} += ...  # additions of parallel iterations are atomic"
                yield subject.finding("TS105", "error", spot.statement, words, remedy)


def _runs_once(loop: ast.For) -> bool:
    """`for _ in range(1)`."""
    match iterated(loop):
        case ast.Call(args=[ast.Constant(value=1)]) as call:
            return called(call) in ("range", "ndrange")
        case _:
            return False
