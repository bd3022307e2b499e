"""Deep expressions: gives their parts names before they are printed.

Python's parser takes at most 200 nested parentheses, and the engines' compilers go through an expression recursively,
with several Python calls a level. Passes put expressions into each other, so that an expression may become deeper than
any that the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir import Operator, nodes, walk

DEEPEST = 40
"""Levels of operations in a printed expression: few enough for the engines, and more than people write."""


def split_deep_expressions(kernel: nodes.Kernel, reserve_name: Callable[[str], str]) -> nodes.Kernel:
    """Return the kernel with locals in place of parts that are too deep. It computes the same, in the same order.

    Args:
        kernel: the kernel.
        reserve_name: returns an unused name, like the one it is given.
    """
    names: dict[str, str] = {}

    def split(one: nodes.Stmt) -> list[nodes.Stmt]:
        if all(_depth(expr) <= DEEPEST for expr in walk.expressions(one)):
            return [one]
        before: list[nodes.Stmt] = []

        def give_name(part: nodes.Expr) -> nodes.Expr:
            name = reserve_name("part")
            names[name] = part.type
            before.append(nodes.Assign(name, part, one.line))
            return nodes.Local(name, part.type)

        changed = walk.with_expressions(one, lambda expr: _split(expr, give_name)[0])
        return [*before, changed]

    body = walk.rewrite(kernel.body, split)
    return replace(kernel, body=body, locals={**kernel.locals, **names}) if names else kernel


def _depth(expr: nodes.Expr) -> int:
    return max((1 + _depth(part) for part in walk.operands(expr)), default=0)


def _split(expr: nodes.Expr, give_name: Callable[[nodes.Expr], nodes.Expr]) -> tuple[nodes.Expr, int]:
    """Return an expression of at most `DEEPEST` levels, and how many it has."""
    if isinstance(expr, nodes.Binary) and expr.operator == Operator.STRAIGHT_THROUGH:
        return _split(expr.left, give_name)  # all that is printed of it
    depths = [0]

    def change(part: nodes.Expr) -> nodes.Expr:
        short, depth = _split(part, give_name)
        if depth == DEEPEST:
            short, depth = give_name(short), 0
        depths.append(depth + 1)
        return short

    changed = walk.rebuild(expr, change)
    return changed, max(depths)
