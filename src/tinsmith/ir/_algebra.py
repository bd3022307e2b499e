"""Algebra: expressions of the IR put together with what is known of 0 and 1, so that they stay short.

A known 0 takes what it is multiplied with away, even infinity: it says that there is nothing, not that a
number is small. Operands of one builder have one type, which is the result's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from . import _nodes as nodes
from . import _types as types
from ._operators import Operator
from ._types import Type


def constant(value: float, kind: Type) -> nodes.Const:
    """Return a known number of a type.

    Example:
        >>> constant(1, "f32")
        Const(value=1.0, type='f32')
    """
    return nodes.Const(float(value) if types.is_float(kind) else int(value), kind)


ZERO, ONE = constant(0, Type.I32), constant(1, Type.I32)
TRUE, FALSE = nodes.Const(True, Type.U1), nodes.Const(False, Type.U1)


def number(value: int) -> nodes.Const:
    """Return an i32 constant."""
    return constant(value, Type.I32)


def integer(operator: Operator, left: nodes.Expr, right: nodes.Expr) -> nodes.Binary:
    """Return a binary operation on two i32 expressions; its result is an i32."""
    return nodes.Binary(operator, left, right, Type.I32)


def both(one: nodes.Expr, other: nodes.Expr) -> nodes.Expr:
    """Return `one and other` for two truths, simplified if one of them is known."""
    if FALSE in (one, other):
        return FALSE
    if TRUE in (one, other):
        return other if one == TRUE else one
    return nodes.Binary(Operator.AND, one, other, Type.U1)


def or_else(one: nodes.Expr, other: nodes.Expr) -> nodes.Expr:
    """Return `one or other` for two truths, simplified if one of them is known."""
    if TRUE in (one, other):
        return TRUE
    if FALSE in (one, other):
        return other if one == FALSE else one
    return nodes.Binary(Operator.OR, one, other, Type.U1)


def opposite(truth: nodes.Expr) -> nodes.Expr:
    """Return the negation of a truth value; for `not x`, return `x`."""
    is_opposite = isinstance(truth, nodes.Unary) and truth.operator == Operator.NOT
    return truth.value if isinstance(truth, nodes.Unary) and is_opposite else nodes.Unary(Operator.NOT, truth, Type.U1)


def is_constant(expr: nodes.Expr, value: float | None = None) -> bool:
    """Return True if an expression is a constant and, if `value` is given, equal to it."""
    return isinstance(expr, nodes.Const) and (value is None or expr.value == value)


def cast(expr: nodes.Expr, kind: Type) -> nodes.Expr:
    """Return an expression converted to a type; itself if it has that type."""
    if expr.type == kind:
        return expr
    # Up to 2048, all integers are exact in every float type; f16, the narrowest, has a significand of 11 bits. Other
    # numbers are converted by the engine, which rounds as it does.
    if isinstance(expr, nodes.Const) and types.is_float(kind) and expr.value in range(-2048, 2049):
        return constant(expr.value, kind)
    return nodes.Cast(expr, kind)


def negate(expr: nodes.Expr) -> nodes.Expr:
    """Return `-expr`."""
    match expr:
        case nodes.Const(value, kind):
            # A known 0 says that there is nothing. It stays the constant 0 and never becomes -0.0, which would be
            # printed.
            return constant(-value, kind) if value else expr
        # A negation that also converts stays: without it, the result would have another type.
        case nodes.Unary(Operator.NEG, value, kind) if value.type == kind:
            return value
        case nodes.Binary(Operator.MUL | Operator.DIV as operator, nodes.Const(value, kind), right, whole) if (
            kind == whole
        ):
            return nodes.Binary(operator, constant(-value, kind), right, whole)
    return nodes.Unary(Operator.NEG, expr, expr.type)


def plus(left: nodes.Expr, right: nodes.Expr) -> nodes.Expr:
    """Return `left + right`."""
    if is_constant(left, 0):
        return right
    if is_constant(right, 0):
        return left
    if left == right:
        return times(constant(2, left.type), left)
    # People write `a - b`, not `a + -b`.
    if isinstance(right, nodes.Unary) and right.operator == Operator.NEG and right.value.type == right.type:
        return nodes.Binary(Operator.SUB, left, right.value, left.type)
    return nodes.Binary(Operator.ADD, left, right, left.type)


def minus(left: nodes.Expr, right: nodes.Expr) -> nodes.Expr:
    """Return `left - right`."""
    if is_constant(left, 0):
        return negate(right)
    if is_constant(right, 0):
        return left
    return nodes.Binary(Operator.SUB, left, right, left.type)


def shift_by(expr: nodes.Expr, distance: int) -> nodes.Expr:
    """Return an index plus a known number; a number if the index is one."""
    if isinstance(expr, nodes.Const):
        return constant(expr.value + distance, expr.type)
    by = constant(abs(distance), expr.type)
    return minus(expr, by) if distance < 0 else plus(expr, by)


def times(left: nodes.Expr, right: nodes.Expr) -> nodes.Expr:
    """Return `left * right`, with a known number on the left."""
    if is_constant(right) and not is_constant(left):
        left, right = right, left
    if isinstance(left, nodes.Const):
        match left.value:
            case 0:
                return left
            case 1:
                return right
            case -1:
                return negate(right)
        if isinstance(right, nodes.Const):
            return constant(left.value * right.value, left.type)
    return nodes.Binary(Operator.MUL, left, right, left.type)


def over(left: nodes.Expr, right: nodes.Expr) -> nodes.Expr:
    """Return `left / right`."""
    if is_constant(left, 0) or is_constant(right, 1):
        return left
    if is_constant(right, -1):
        return negate(left)
    return nodes.Binary(Operator.DIV, left, right, left.type)


def either(condition: nodes.Expr, then: nodes.Expr, otherwise: nodes.Expr) -> nodes.Expr:
    """Return a selection of one of two values by a condition; the value itself if both are the same."""
    return then if then == otherwise else nodes.Select(condition, then, otherwise, then.type)


def compare(operator: Operator, left: nodes.Expr, right: nodes.Expr) -> nodes.Expr:
    """Return a comparison of two numbers."""
    return nodes.Binary(operator, left, right, Type.U1)


def restore(kept: nodes.Expr, kind: Type) -> nodes.Expr:
    """Return a number of a type from memory that saves it as `types.keeping` says: a truth lies there as an integer."""
    return compare(Operator.NE, kept, constant(0, kept.type)) if kind == Type.U1 else cast(kept, kind)


def is_not_zero(number: nodes.Expr) -> nodes.Expr:
    """Return the condition that a number is not 0. It is true for NaN."""
    # Not `number != 0`, which both engines hold false for NaN: a guard that asked so turned a NaN cotangent into
    # gradients of 0 (tests/bridge/test_nan_cotangents.py).
    return opposite(compare(Operator.EQ, number, constant(0, number.type)))


def product(factors: Sequence[nodes.Expr]) -> nodes.Expr:
    """Return the product of i32 expressions in their order; nothing is simplified."""
    return reduce(lambda one, other: integer(Operator.MUL, one, other), factors)


def straight_through(value: nodes.Expr, source: nodes.Expr) -> nodes.Expr:
    """Return an expression with the value of one and the derivative of another."""
    return nodes.Binary(Operator.STRAIGHT_THROUGH, value, source, value.type)


BLOCK_SIZE = 128
"""The number of iterations in a block of a kernel that does not set `block_dim`: both engines' default on GPUs."""


def iteration_number(names: Sequence[str], bounds: Sequence[tuple[nodes.Expr, nodes.Expr]]) -> nodes.Expr:
    """Return the number of an iteration of a loop, counted from 0, the last name fastest.

    Example:
        >>> iteration_number(["i"], [(nodes.Const(0, "i32"), nodes.Size("x", 0))])
        Local(name='i', type='i32')
    """
    number: nodes.Expr = ZERO
    for place, (name, (first, end)) in enumerate(zip(names, bounds, strict=True)):
        here = minus(nodes.Local(name, Type.I32), first)
        # Not `times`, which would put a known size first: people write `i * 16 + j`, and `BlockLayout` looks for that.
        number = integer(Operator.ADD, integer(Operator.MUL, number, minus(end, first)), here) if place else here
    return number
