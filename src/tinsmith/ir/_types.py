"""Scalar types of the IR, and the engines' rules for what an operation gives.

A type is the engine's own name for it: "f32", "i64", "u1". Both engines have the same rules, which are
neither Python's nor torch's: an integer and a float give the float, however narrow; a local keeps the type of
its first value; a quotient of integers is a float of the default width. tests/frontend/ir/test_types.py asks
the engines themselves.
"""

from __future__ import annotations

from itertools import product
from typing import Literal, NamedTuple

from ._operators import COMPARISONS, INTEGERS_ONLY, REAL_ONLY, SHIFTS, WIDENING

FLOATS = ("f16", "f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u1", "u8", "u16", "u32", "u64")
ALL = frozenset({*FLOATS, *SIGNED, *UNSIGNED})


class Defaults(NamedTuple):
    """What a literal of Python's becomes: the engine's `default_fp` and `default_ip`."""

    fp: Literal["f16", "f32", "f64"] = "f32"
    ip: Literal["i32", "i64"] = "i32"


def is_float(kind: str) -> bool:
    """Whether a type is a floating one."""
    return kind in FLOATS


def zero(kind: str) -> bool | int | float:
    """A type's zero, as Python has it."""
    if kind == "u1":
        return False
    return 0.0 if is_float(kind) else 0


def width(kind: str) -> int:
    """Bits of a type; a truth takes as many as a byte."""
    return max(8, int(kind[1:]))


def keeping(kind: str) -> str:
    """The type of memory that keeps numbers of a type: torch has no arithmetic on every type that engines have."""
    if is_float(kind):
        return "f64" if kind == "f64" else "f32"
    return "i64" if kind in ("i64", "u64", "u32") else "i32"


def promote(one: str, other: str) -> str:
    """The type of an arithmetic operation on two.

    Example:
        >>> promote("i64", "f32"), promote("i32", "i64"), promote("i32", "u32")
        ('f32', 'i64', 'u32')
    """
    if is_float(one) != is_float(other):
        return one if is_float(one) else other
    if width(one) != width(other):
        return one if width(one) > width(other) else other
    return one if one in UNSIGNED and other not in UNSIGNED else other


def of_literal(value: bool | float, defaults: Defaults) -> str:
    """The type of a Python number in a kernel."""
    if isinstance(value, bool):
        return "u1"
    return defaults.fp if isinstance(value, float) else defaults.ip


def fits(value: int, kind: str) -> bool:
    """Whether an integer is one of a type's."""
    if kind == "u1":
        return value in (0, 1)
    bits = width(kind)
    first = -(2 ** (bits - 1)) if kind in SIGNED else 0
    return first <= value < first + 2**bits


def of_unary(operator: str, kind: str, defaults: Defaults) -> str:
    """The type of an operation on one."""
    if operator in ("not", "ffs"):
        return "u1" if operator == "not" else "i32"
    return defaults.fp if operator in WIDENING and not is_float(kind) else kind


def of_operation(operator: str, one: str, other: str, defaults: Defaults) -> str:
    """The type of a binary operation, from those of its operands."""
    if operator in COMPARISONS:
        return "u1"
    if operator in SHIFTS:
        return one
    if operator in ("/", "atan2"):
        one, other = (kind if is_float(kind) else defaults.fp for kind in (one, other))
        kind = promote(one, other)
        return "f32" if operator == "atan2" and kind == "f16" else kind
    if operator == "pow" and not is_float(one) and not is_float(other):
        return one
    return promote(one, other)


def accepts(operator: str, *kinds: str) -> bool:
    """Whether the engines take operands of these types."""
    if operator in INTEGERS_ONLY:
        return not any(is_float(kind) for kind in kinds)
    return operator not in REAL_ONLY or is_float(kinds[0])


_EVERY_DEFAULT = [Defaults(fp, ip) for fp, ip in product(FLOATS, ("i32", "i64"))]


def of_unary_in_any(operator: str, kind: str) -> frozenset[str]:
    """The types that an operation on one may have, whatever an engine's defaults."""
    return frozenset(of_unary(operator, kind, defaults) for defaults in _EVERY_DEFAULT)


def of_operation_in_any(operator: str, one: str, other: str) -> frozenset[str]:
    """The types that an operation on two may have, whatever an engine's defaults."""
    if operator == "straight_through":
        return frozenset({one})
    return frozenset(of_operation(operator, one, other, defaults) for defaults in _EVERY_DEFAULT)
