"""Bits: numbers that were taken apart and put together again, whose derivative nobody can tell.

What a kernel learns of a float's bits is a whole number, with no derivative: `isnan` asks so. But
where it makes a float of such bits again, a derivative is lost on the way, and is not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..source.ir import NotCovered, nodes, types, walk


def check_bits(kernel: nodes.Kernel, is_active: Callable[[nodes.Expr], bool]) -> None:
    """Refuse a kernel that makes a float from the bits of one that has a derivative.

    Args:
        kernel: the kernel.
        is_active: whether an expression that is floating has a derivative.

    Raises:
        NotCovered: with the line where it does.
    """
    statements = [*walk.statements(kernel.body)]
    known: set[str] = set()
    before = -1
    while len(known) > before:
        before = len(known)
        for one in statements:
            if any(_is_of_bits(expr, known, is_active) for expr in _values(one)):
                known.update(_targets(one))
    for one in statements:
        for part in (part for expr in walk.expressions(one) for part in walk.parts(expr)):
            if _makes_float(part) and _is_of_bits(walk.operands(part)[0], known, is_active):
                raise NotCovered("the derivative of a float's bits", one.line, f"{kernel.path}:{one.line}")


def _makes_float(expr: nodes.Expr) -> bool:
    return isinstance(expr, nodes.Cast) and expr.keeps_bits and types.is_float(expr.type)


def _is_of_bits(expr: nodes.Expr, known: set[str], is_active: Callable[[nodes.Expr], bool]) -> bool:
    """Whether a whole number is made from a float's bits. A comparison's truth has no derivative to lose."""
    if types.is_float(expr.type) or expr.type == "u1":
        return False
    match expr:
        case nodes.Local(name) | nodes.Load(name):
            return name in known
        case nodes.Cast(value) if types.is_float(value.type):
            return expr.keeps_bits and is_active(value)
    return any(_is_of_bits(operand, known, is_active) for operand in walk.operands(expr))


def _values(one: nodes.Stmt) -> Iterator[nodes.Expr]:
    if isinstance(one, nodes.Assign | nodes.Store | nodes.Atomic):
        yield one.value


def _targets(one: nodes.Stmt) -> Iterator[str]:
    yield from walk.assigned(one)
    if isinstance(one, nodes.Store | nodes.Atomic):
        yield one.array
