"""Hashes: lines on which integers wrap around on purpose.

A hash multiplies, shifts and mixes: a line is taken for a part of one where it has a bit operation, or gives a value to
a local that a bit operation takes, straight or through other locals.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir import nodes, walk

_BITS = frozenset({"&", "|", "^", ">>", ">>>", "~"})


def hashing_lines(kernel: nodes.Kernel) -> frozenset[int]:
    """Lines of a kernel that are parts of a hash."""
    statements = list(walk.statements(kernel.body))
    mixed = {name for stmt in statements for name in _find_mixed_locals(stmt)}
    size = -1
    while size != len(mixed):
        size = len(mixed)
        for stmt in statements:
            if isinstance(stmt, nodes.Assign) and stmt.name in mixed:
                mixed |= walk.locals_in([one for one in walk.expressions(stmt) if one.type[0] in "iu"])
    return frozenset(stmt.line for stmt in statements if _is_part(stmt, mixed))


def _is_part(stmt: nodes.Stmt, mixed: set[str]) -> bool:
    return any(name in mixed for name in walk.find_assigned(stmt)) or any(True for _ in _operations(stmt))


def _find_mixed_locals(stmt: nodes.Stmt) -> set[str]:
    """Locals that bit operations of a statement take."""
    return {name for one in _operations(stmt) for name in walk.locals_in(walk.operands(one))}


def _operations(stmt: nodes.Stmt) -> Iterator[nodes.Expr]:
    parts = walk.parts(*walk.expressions(stmt))
    bitwise = (one for one in parts if isinstance(one, nodes.Binary | nodes.Unary) and one.operator in _BITS)
    return (one for one in bitwise if any(operand.type != "u1" for operand in walk.operands(one)))  # no truths
