"""Whether the reverse of a loop has to run from its last iteration to its first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from ...source.ir import nodes, walk
from ._form import Branch, Carried, Loop, locals_read, steps_in, stores_in


def overwrites(loop: Loop, arrays: Collection[str], once: Collection[int]) -> bool:
    """Whether an iteration may store where an earlier one did: the later one is to take the adjoint first.

    Args:
        loop: the loop.
        arrays: those that have an adjoint.
        once: numbers of stores to elements that nothing else touches.
    """
    stores = (one for one in stores_in(loop.body) if isinstance(one, nodes.Store))
    return any(one.array in arrays and one.number not in once for one in stores)


def only_adds(loop: Loop, carried: Carried) -> bool:
    """Whether iterations do no more with what they hand on than add to it: all of them get one and the same adjoint."""
    given: dict[str, list[nodes.Expr]] = {}
    reads: Counter[str] = Counter(_mentions(one.next for one in loop.carried))
    for step in steps_in(loop.body):
        if isinstance(step, nodes.Assign):
            given.setdefault(step.name, []).append(step.value)
            reads.update(_mentions([step.value]))
        elif isinstance(step, Branch | Loop):
            reads.update(dict.fromkeys(locals_read(step), 2))
        else:
            reads.update(_mentions(walk.expressions(step)))
    return _leads_to(carried.head, carried.next, given, reads)


def _leads_to(head: str, expr: nodes.Expr, given: dict[str, list[nodes.Expr]], reads: Counter[str]) -> bool:
    """Whether a value is `head` and something, by names that nothing else reads."""
    match expr:
        case nodes.Local(name) if reads[name] != 1:
            return False
        case nodes.Local(name) if name == head:
            return True
        case nodes.Local(name) if len(given.get(name, ())) == 1:
            return _leads_to(head, given[name][0], given, reads)
        case nodes.Binary("+", left, right) if left.type == right.type == expr.type:
            return _leads_to(head, left, given, reads) or _leads_to(head, right, given, reads)
        case nodes.Binary("-", left, right) if left.type == right.type == expr.type:
            return _leads_to(head, left, given, reads)
    return False


def _mentions(exprs: Iterator[nodes.Expr] | Collection[nodes.Expr]) -> Iterator[str]:
    """Locals that expressions read, each as often as it is read."""
    return (part.name for expr in exprs for part in walk.parts(expr) if isinstance(part, nodes.Local))
