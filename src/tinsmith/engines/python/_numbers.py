"""Numbers of the Python engine: NumPy scalars that follow the compiled engines' rules.

A number that is known only during the run is a NumPy scalar, so it is rounded or wraps around after every operation.
A number in the kernel's text or closure is a Python number, and operations on two of them are Python's, as in the
engines' compilers; combined with a number of the run it gets a default type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .._operators import PYTHON_OPERATORS

Number: TypeAlias = "np.generic | int | float"
Rule: TypeAlias = Callable[..., Any]

TYPES: dict[str, type[np.generic]] = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u1": np.bool_,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
}
"""The NumPy type of a number, by the engines' name for it."""
KINDS: dict[type, str] = {kind: name for name, kind in TYPES.items()}
FLOATS = frozenset({"f16", "f32", "f64"})
LITERALS = (bool, int, float)


class Defaults(NamedTuple):
    """The types of Python's floats and integers: `default_fp` and `default_ip` of the engine."""

    fp: str = "f32"
    ip: str = "i32"


def bits_of(kind: str) -> int:
    """Return the number of bits of a type. A bool takes a byte."""
    return max(8, int(kind[1:]))


def promote(one: str, other: str) -> str:
    """Return the result type of an operation on two types: the float, else the wider, else the unsigned one."""
    if (one in FLOATS) != (other in FLOATS):
        return one if one in FLOATS else other
    if bits_of(one) != bits_of(other):
        return one if bits_of(one) > bits_of(other) else other
    return one if one[0] == "u" and other[0] != "u" else other


def build_cast(target: str) -> Rule:
    """Return the function that converts any number to a type.

    A float out of the range of an integer type becomes what x86 yields: the lowest value of 32 or 64 bits, truncated
    to the type.
    """
    made = TYPES[target]
    if target in FLOATS:
        return made
    if target == "u1":
        return lambda value: np.bool_(value != 0)
    wide = np.int64 if target == "u32" or bits_of(target) == 64 else np.int32
    highest, lowest = float(2 ** (63 if wide is np.int64 else 31)), wide(np.iinfo(wide).min)

    def cast(value: Any) -> Any:
        kind = type(value)
        if kind is float or issubclass(kind, np.floating):
            number = float(value)
            if target == "u64" and highest <= number < 2 * highest:
                return np.uint64(int(number))
            is_inside = -highest - 1 < number < highest
            return made(wide(int(number)) if is_inside else lowest)
        if kind is int:
            return made(np.int64(value)) if -(2**63) <= value < 2**63 else made(value)
        return made(value)

    return cast


CASTS = {kind: build_cast(kind) for kind in TYPES}
"""Conversions, by the name of the target type."""


def _divide_down(left: Any, right: Any) -> Any:
    """Return the quotient of two integers, rounded down."""
    if not right:
        raise ZeroDivisionError("integer division by zero")
    return left // right


def _remainder(left: Any, right: Any) -> Any:
    """Return the remainder of an integer division that rounds down. It has the sign of the divisor."""
    if not right:
        raise ZeroDivisionError("integer modulo by zero")
    return left % right


def _divide_toward_zero(left: Any, right: Any) -> Any:
    if not right:
        raise ZeroDivisionError("integer division by zero")
    one, other = int(left), int(right)
    quotient = abs(one) // abs(other)
    return CASTS[KINDS[type(left)]](quotient if (one < 0) == (other < 0) else -quotient)


def _remainder_toward_zero(left: Any, right: Any) -> Any:
    return left - right * _divide_toward_zero(left, right)


def _integer_power(left: Any, right: Any) -> Any:
    """Return a power of integers. For a negative exponent, undefined in the engines, return 1 / power truncated."""
    base, exponent, kind = int(left), int(right), KINDS[type(left)]
    if exponent < 0:
        return CASTS[kind](base ** (exponent % 2) if abs(base) == 1 else 0)
    return CASTS[kind](_wrap(pow(base, exponent, 1 << bits_of(kind)), kind))


def _wrap(value: int, kind: str) -> int:
    """Truncate an integer to the bits of its type."""
    value &= (1 << bits_of(kind)) - 1
    return value - (1 << bits_of(kind)) if kind[0] == "i" and value >> (bits_of(kind) - 1) else value


def _shift_left(left: Any, right: Any) -> Any:
    kind = KINDS[type(left)]
    return CASTS[kind](_wrap(int(left) << _shift_count(right, kind), kind))


def _shift_right(left: Any, right: Any) -> Any:
    kind = KINDS[type(left)]
    return CASTS[kind](int(left) >> _shift_count(right, kind))


def _shift_right_filling_zeros(left: Any, right: Any) -> Any:
    kind = KINDS[type(left)]
    pattern = int(left) & ((1 << bits_of(kind)) - 1)
    return CASTS[kind](_wrap(pattern >> _shift_count(right, kind), kind))


def _shift_count(right: Any, kind: str) -> int:
    """Return the number of bits to shift by. For a count beyond the width, which is undefined, use its low bits."""
    return int(right) & (bits_of(kind) - 1)


def _float_quotient(left: Any, right: Any) -> Any:
    return np.floor(left / right)


def _float_remainder(left: Any, right: Any) -> Any:
    return left - right * np.floor(left / right)


INTEGER_RULES: dict[str, Rule] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": _divide_down,
    "%": _remainder,
    "raw_div": _divide_toward_zero,
    "raw_mod": _remainder_toward_zero,
    "pow": _integer_power,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "min": np.minimum,
    "max": np.maximum,
}
"""Operations on two integers of one type."""
TRUTH_RULES: dict[str, Rule] = {
    # As in the compiled engines, whose bools have one bit.
    "+": operator.xor,
    "-": operator.xor,
    "*": operator.and_,
}
"""Operations on two bools that NumPy defines differently."""
FLOAT_RULES: dict[str, Rule] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": _float_quotient,
    "%": _float_remainder,
    "raw_div": operator.truediv,
    "raw_mod": np.fmod,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "atan2": np.arctan2,
}
"""Operations on two floats of one type."""
SHIFTS: dict[str, Rule] = {"<<": _shift_left, ">>": _shift_right, ">>>": _shift_right_filling_zeros}
PYTHON: dict[str, Rule] = {**PYTHON_OPERATORS, "min": min, "max": max}
"""Operations on two numbers that are known before the run."""


def _round(value: Any) -> Any:
    """Round to the nearest integer, halves away from zero."""
    whole = np.trunc(value)
    return whole + np.sign(value) if abs(value - whole) >= 0.5 else whole


def _reciprocal_root(value: Any) -> Any:
    return type(value)(1) / np.sqrt(value)


def _bit_count(value: Any) -> Any:
    return CASTS[KINDS[type(value)]](_pattern(value).bit_count())


def _leading_zeros(value: Any) -> Any:
    kind = KINDS[type(value)]
    return CASTS[kind](bits_of(kind) - _pattern(value).bit_length())


def _first_bit(value: Any) -> Any:
    pattern = _pattern(value)
    return np.int32((pattern & -pattern).bit_length())


def _pattern(value: Any) -> int:
    return int(value) & ((1 << bits_of(KINDS[type(value)])) - 1)


UNARY_RULES: dict[str, Rule] = {
    "neg": operator.neg,
    "abs": abs,
    "sgn": np.sign,
    "~": operator.invert,
    "not": lambda value: np.bool_(not value),
    "popcnt": _bit_count,
    "clz": _leading_zeros,
    "ffs": _first_bit,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": _round,
    "sqrt": np.sqrt,
    "rsqrt": _reciprocal_root,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "tanh": np.tanh,
}
