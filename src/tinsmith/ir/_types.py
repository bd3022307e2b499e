"""Scalar types of the IR, and the engines' rules for the type of an operation's result.

Both engines have the same rules, which are neither Python's nor torch's: an integer and a float give the float, however
narrow; a local keeps the type of its first value; a quotient of integers is a float of the default width.
tests/frontend/ir/test_types.py asks the engines themselves.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from ._operators import COMPARISONS, INTEGERS_ONLY, REAL_ONLY, SHIFTS, WIDENING, Operator, TextEnum


class Type(TextEnum):
    """A type of numbers. As text it is the engines' name for it."""

    F16 = "f16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U1 = "u1"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"


FLOATS = (Type.F16, Type.F32, Type.F64)
SIGNED = (Type.I8, Type.I16, Type.I32, Type.I64)
UNSIGNED = (Type.U1, Type.U8, Type.U16, Type.U32, Type.U64)
ALL = frozenset(Type)


class Defaults(NamedTuple):
    """What a literal of Python's becomes: the engine's `default_fp` and `default_ip`."""

    fp: Type = Type.F32
    ip: Type = Type.I32


def is_float(kind: Type) -> bool:
    """Return True for a floating type."""
    return kind in FLOATS


def zero(kind: Type) -> bool | int | float:
    """Return a type's zero as a Python number."""
    if kind == Type.U1:
        return False
    return 0.0 if is_float(kind) else 0


def width(kind: Type) -> int:
    """Return the number of bits of a type in memory; u1 takes 8."""
    return max(8, int(kind[1:]))


def keeping(kind: Type) -> Type:
    """Return the type of memory that saves numbers of a type: torch computes with fewer types than engines have."""
    if is_float(kind):
        return Type.F64 if kind == Type.F64 else Type.F32
    # A u32 needs one bit more than an i32 has.
    return Type.I64 if kind in (Type.I64, Type.U64, Type.U32) else Type.I32


def promote(one: Type, other: Type) -> Type:
    """Return the type of an arithmetic operation on two numbers.

    Example:
        >>> promote(Type.I64, Type.F32), promote(Type.I32, Type.I64), promote(Type.I32, Type.U32)
        ('f32', 'i64', 'u32')
    """
    # The engines' rules, which tests/frontend/ir/test_types.py asks them for: `i64 + f16` is an f16, and of equal
    # widths unsigned wins, as in C.
    if is_float(one) != is_float(other):
        return one if is_float(one) else other
    if width(one) != width(other):
        return one if width(one) > width(other) else other
    return one if one in UNSIGNED and other not in UNSIGNED else other


def of_literal(value: bool | float, defaults: Defaults) -> Type:
    """Return the type of a Python number in a kernel."""
    if isinstance(value, bool):
        return Type.U1
    return defaults.fp if isinstance(value, float) else defaults.ip


def fits(value: int, kind: Type) -> bool:
    """Return True if a type can represent an integer."""
    if kind == Type.U1:
        return value in (0, 1)
    bits = width(kind)
    first = -(2 ** (bits - 1)) if kind in SIGNED else 0
    return first <= value < first + 2**bits


def of_unary(operator: str, kind: Type, defaults: Defaults) -> Type:
    """Return the type of an operation on one number."""
    if operator in ("not", "ffs"):
        return Type.U1 if operator == "not" else Type.I32
    return defaults.fp if operator in WIDENING and not is_float(kind) else kind


def of_operation(operator: str, one: Type, other: Type, defaults: Defaults) -> Type:
    """Return the type of a binary operation, given those of its operands."""
    if operator in COMPARISONS:
        return Type.U1
    if operator in SHIFTS or operator == Operator.STRAIGHT_THROUGH:
        return one
    if operator in ("/", "atan2"):
        one, other = (kind if is_float(kind) else defaults.fp for kind in (one, other))
        kind = promote(one, other)
        # Both engines compute `atan2` of two f16 in f32.
        return Type.F32 if operator == "atan2" and kind == Type.F16 else kind
    # A power of integers has the type of its base, however wide the exponent is.
    if operator == "pow" and not is_float(one) and not is_float(other):
        return one
    return promote(one, other)


def accepts(operator: str, *kinds: Type) -> bool:
    """Return True if the engines accept operands of these types for an operator."""
    if operator in INTEGERS_ONLY:
        return not any(is_float(kind) for kind in kinds)
    return operator not in REAL_ONLY or is_float(kinds[0])


# The verifier is given no engine's defaults, so it accepts what any of them leads to.
_EVERY_DEFAULT = [Defaults(fp, ip) for fp, ip in product(FLOATS, (Type.I32, Type.I64))]


def of_unary_in_any(operator: str, kind: Type) -> frozenset[Type]:
    """Return the types that an operation on one number may have, whatever an engine's defaults."""
    return frozenset(of_unary(operator, kind, defaults) for defaults in _EVERY_DEFAULT)


def of_operation_in_any(operator: str, one: Type, other: Type) -> frozenset[Type]:
    """Return the types that an operation on two numbers may have, whatever an engine's defaults."""
    return frozenset(of_operation(operator, one, other, defaults) for defaults in _EVERY_DEFAULT)
