"""Bits: floats that are rebuilt from their bits, whose derivative is unknown.

What a kernel learns of a float's bits is a whole number, with no derivative: `isnan` asks so. But
where it makes a float of such bits again, a derivative is lost on the way, and is not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..source.ir import NotCovered, nodes, types, walk

IsActive = Callable[[nodes.Expr], bool]
Known = Callable[[nodes.Local | nodes.Load], bool]


class Part(NamedTuple):
    """Statements with locals of their own.

    Attributes:
        statements: all of them, those inside others too.
        is_active: whether an expression that is floating has a derivative.
        path: the file that their lines count in.
    """

    statements: Sequence[nodes.Stmt]
    is_active: IsActive
    path: str


def check_bits(*parts: Part) -> None:
    """Refuse statements that make a float from the bits of one that has a derivative. Parts share memory.

    Raises:
        NotCovered: with the line where they do.
    """
    known: set[tuple[int, str]] = set()

    def known_in(number: int) -> Known:
        return lambda one: ((number, one.name) if isinstance(one, nodes.Local) else (-1, one.array)) in known

    before = -1
    while len(known) > before:
        before = len(known)
        for number, part in enumerate(parts):
            for one in part.statements:
                if any(_is_of_bits(expr, known_in(number), part.is_active) for expr in _values(one)):
                    known.update((number, name) for name in walk.find_assigned(one))
                    known.update((-1, name) for name in _find_changed(one))
    for number, part in enumerate(parts):
        for one in part.statements:
            for expr in walk.parts(*walk.expressions(one)):
                if _makes_float(expr) and _is_of_bits(walk.operands(expr)[0], known_in(number), part.is_active):
                    raise NotCovered("the derivative of a float's bits", one.line, part.path)


def _makes_float(expr: nodes.Expr) -> bool:
    return isinstance(expr, nodes.Cast) and expr.keeps_bits and types.is_float(expr.type)


def _is_of_bits(expr: nodes.Expr, known: Known, is_active: IsActive) -> bool:
    """Whether a whole number is made from a float's bits. A comparison's truth has no derivative to lose."""
    if types.is_float(expr.type) or expr.type == "u1":
        return False
    match expr:
        case nodes.Local() | nodes.Load():
            return known(expr)
        case nodes.Cast(value) if types.is_float(value.type):
            return expr.keeps_bits and is_active(value)
    return any(_is_of_bits(operand, known, is_active) for operand in walk.operands(expr))


def _values(one: nodes.Stmt) -> Iterator[nodes.Expr]:
    if isinstance(one, nodes.Assign | nodes.Store | nodes.Atomic):
        yield one.value


def _find_changed(one: nodes.Stmt) -> Iterator[str]:
    if isinstance(one, nodes.Store | nodes.Atomic):
        yield one.array
