"""Integers: the exact results of operations that may wrap around, and whether their types hold them.

In a hash, integers wrap around on purpose. A line counts as part of a hash if it has a bit operation, or if it assigns
to a local that a bit operation uses, directly or through other locals.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...engines import Number
from ...ir import nodes, walk

_BITS = frozenset({"&", "|", "^", ">>", ">>>", "~"})
_FAR = 128
"""A number of bits that exceeds those of any type."""


def _power(base: int, exponent: int) -> int:
    return base ** min(exponent, _FAR) if exponent >= 0 else 0


def _shift_left(value: int, count: int) -> int:
    return value << count if 0 <= count < _FAR else value << _FAR


_EXACT: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "neg": operator.neg,
    "abs": abs,
    "<<": _shift_left,
    "pow": _power,
}
_CALLED = {"neg": "-({})", "abs": "abs({})", "pow": "{} ** {}"}


def is_unsigned(kind: str) -> bool:
    return kind[0] == "u"


def limits(kind: str) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer type."""
    bits = int(kind[1:])
    return (0, 2**bits - 1) if is_unsigned(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def overflow(name: str, kind: str, operands: tuple[Number, ...]) -> int | None:
    """Return the exact result of an integer operation if `kind` cannot hold it, or None if it can."""
    exact = _EXACT.get(name)
    if exact is None or (name == "<<" and is_unsigned(kind)):  # shifting bits out of an unsigned number is intended
        return None
    value = exact(*operands)
    least, greatest = limits(kind)
    return None if least <= value <= greatest else value


def loses_bits(kind: str, value: Number) -> bool:
    """Return True if the cast of a number to an integer type overflows.

    Dropping the fraction of a float is no overflow; nor is a cast of -1 to an unsigned type, which keeps the bits.
    """
    if kind == "u1":
        return False
    least, greatest = limits(kind)
    if isinstance(value, torch.Tensor):
        number = value.item()
        return not math.isfinite(number) or not least <= int(number) <= greatest
    return not -(2 ** int(kind[1:]) // 2) <= value < 2 ** int(kind[1:])


def format_operation(name: str, operands: tuple[Number, ...]) -> str:
    """Format an operation with its operands, as the source would write it."""
    numbers = [str(one.item() if isinstance(one, torch.Tensor) else one) for one in operands]
    form = _CALLED.get(name, "{} " + name + " {}" if len(numbers) == 2 else name + "({})")
    return form.format(*numbers)


def find_hashing_lines(kernel: nodes.Kernel) -> frozenset[int]:
    """Return the line numbers at which a kernel computes a hash: bit operations, and their integer operands."""
    statements = list(walk.statements(kernel.body))
    mixed = {name for stmt in statements for name in _find_bit_operands(stmt)}
    size = -1
    while size != len(mixed):
        size = len(mixed)
        for stmt in statements:
            if isinstance(stmt, nodes.Assign) and stmt.name in mixed:
                mixed |= walk.locals_in([one for one in walk.expressions(stmt) if one.type[0] in "iu"])
    return frozenset(stmt.line for stmt in statements if _is_part(stmt, mixed))


def _is_part(stmt: nodes.Stmt, mixed: set[str]) -> bool:
    return any(name in mixed for name in walk.find_assigned(stmt)) or any(True for _ in _operations(stmt))


def _find_bit_operands(stmt: nodes.Stmt) -> set[str]:
    """Return the locals in the operands of a statement's bit operations."""
    return {name for one in _operations(stmt) for name in walk.locals_in(walk.operands(one))}


def _operations(stmt: nodes.Stmt) -> Iterator[nodes.Expr]:
    parts = walk.parts(*walk.expressions(stmt))
    bitwise = (one for one in parts if isinstance(one, nodes.Binary | nodes.Unary) and one.operator in _BITS)
    return (one for one in bitwise if any(operand.type != "u1" for operand in walk.operands(one)))  # not of booleans
