"""Flow: what the derivative of an expression depends on, and how far that goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..source.ir import nodes, types, walk
from ._slopes import is_flat

Edge = tuple[str, str]
"""From what, to what: a local's name, an array's with an `@` before it, an argument's with a `$`."""


def sources(expr: nodes.Expr) -> Iterator[str]:
    """What the derivative of an expression depends on."""
    if not types.is_float(expr.type):
        return
    match expr:
        case nodes.Local():
            yield expr.name
        case nodes.Load():
            yield f"@{expr.array}"
        case nodes.Argument():
            yield f"${expr.name}"
        case nodes.Select():
            yield from sources(expr.then)
            yield from sources(expr.otherwise)
        case nodes.Unary() | nodes.Binary() if is_flat(expr.operator):
            return
        case nodes.Binary("straight_through", _, right):
            yield from sources(right)
        case _:
            for operand in walk.operands(expr):
                yield from sources(operand)


def reached(start: Iterable[str], edges: Iterable[Edge]) -> set[str]:
    """Everything that edges lead to, and where they start."""
    after: dict[str, list[str]] = {}
    for source, target in edges:
        after.setdefault(source, []).append(target)
    found = {*start}
    waiting = list(found)
    while waiting:
        new = [target for target in after.get(waiting.pop(), ()) if target not in found]
        found.update(new)
        waiting += new
    return found
