"""Numbers of the Python engine: NumPy scalars that follow the compiled engines' rules.

A number that only the run knows is a NumPy scalar, so it rounds and wraps around after every operation. A number that
the kernel's text or its closure holds is Python's own, and operations on two such numbers are Python's, as in the
engines' compilers; next to a number of the run it gets a default type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

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
"""NumPy's type of a number, by the engines' name for it."""
KINDS: dict[type, str] = {kind: name for name, kind in TYPES.items()}
FLOATS = frozenset({"f16", "f32", "f64"})
_LITERALS = (bool, int, float)


class Defaults(NamedTuple):
    """The types of Python's floats and integers: `default_fp` and `default_ip` of the engine."""

    fp: str = "f32"
    ip: str = "i32"


def bits_of(kind: str) -> int:
    """Return how many bits a type has; a truth takes a byte."""
    return max(8, int(kind[1:]))


def promote(one: str, other: str) -> str:
    """Return the type of an operation on two numbers: the float, else the wider, else the unsigned one."""
    if (one in FLOATS) != (other in FLOATS):
        return one if one in FLOATS else other
    if bits_of(one) != bits_of(other):
        return one if bits_of(one) > bits_of(other) else other
    return one if one[0] == "u" and other[0] != "u" else other


def build_cast(target: str) -> Rule:
    """Return the function that converts any number to a type.

    A float that does not fit an integer type gives what x86 gives: the lowest value of 32 or 64 bits, cut to the type.
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
"""Conversions by the type that they give."""


def _divide_down(left: Any, right: Any) -> Any:
    """The quotient of two integers, rounded down."""
    if not right:
        raise ZeroDivisionError("integer division by zero")
    return left // right


def _rest(left: Any, right: Any) -> Any:
    """What is left of an integer after a division that is rounded down: it has the sign of the divisor."""
    if not right:
        raise ZeroDivisionError("integer modulo by zero")
    return left % right


def _divide_toward_zero(left: Any, right: Any) -> Any:
    if not right:
        raise ZeroDivisionError("integer division by zero")
    one, other = int(left), int(right)
    quotient = abs(one) // abs(other)
    return CASTS[KINDS[type(left)]](quotient if (one < 0) == (other < 0) else -quotient)


def _rest_toward_zero(left: Any, right: Any) -> Any:
    return left - right * _divide_toward_zero(left, right)


def _integer_power(left: Any, right: Any) -> Any:
    """A power of integers. The engines define no negative exponent: the quotient, truncated, here."""
    base, exponent, kind = int(left), int(right), KINDS[type(left)]
    if exponent < 0:
        return CASTS[kind](base ** (exponent % 2) if abs(base) == 1 else 0)
    return CASTS[kind](_wrap(pow(base, exponent, 1 << bits_of(kind)), kind))


def _wrap(value: int, kind: str) -> int:
    """An integer with the bits above those of its type dropped."""
    value &= (1 << bits_of(kind)) - 1
    return value - (1 << bits_of(kind)) if kind[0] == "i" and value >> (bits_of(kind) - 1) else value


def _shift_left(left: Any, right: Any) -> Any:
    kind = KINDS[type(left)]
    return CASTS[kind](_wrap(int(left) << _count(right, kind), kind))


def _shift_right(left: Any, right: Any) -> Any:
    kind = KINDS[type(left)]
    return CASTS[kind](int(left) >> _count(right, kind))


def _shift_right_filling_zeros(left: Any, right: Any) -> Any:
    kind = KINDS[type(left)]
    pattern = int(left) & ((1 << bits_of(kind)) - 1)
    return CASTS[kind](_wrap(pattern >> _count(right, kind), kind))


def _count(right: Any, kind: str) -> int:
    """Bits to shift by; of a count beyond the width, which is undefined, the low bits."""
    return int(right) & (bits_of(kind) - 1)


def _float_quotient(left: Any, right: Any) -> Any:
    return np.floor(left / right)


def _float_rest(left: Any, right: Any) -> Any:
    return left - right * np.floor(left / right)


INTEGER_RULES: dict[str, Rule] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": _divide_down,
    "%": _rest,
    "raw_div": _divide_toward_zero,
    "raw_mod": _rest_toward_zero,
    "pow": _integer_power,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "min": np.minimum,
    "max": np.maximum,
}
"""Operations on two integers of one type."""
TRUTH_RULES: dict[str, Rule] = {
    # As on the compiled engines, whose truths have one bit.
    "+": operator.xor,
    "-": operator.xor,
    "*": operator.and_,
}
"""Operations on two truths that NumPy does otherwise."""
FLOAT_RULES: dict[str, Rule] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": _float_quotient,
    "%": _float_rest,
    "raw_div": operator.truediv,
    "raw_mod": np.fmod,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "atan2": np.arctan2,
}
"""Operations on two floats of one type."""
SHIFTS: dict[str, Rule] = {"<<": _shift_left, ">>": _shift_right, ">>>": _shift_right_filling_zeros}
COMPARISONS: dict[str, Rule] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PYTHON: dict[str, Rule] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "pow": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "min": min,
    "max": max,
    **COMPARISONS,
}
"""Operations on two numbers that are known before the run."""


def _round(value: Any) -> Any:
    """The nearest integer; of two, the one away from zero."""
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
_WIDENING = frozenset({"sqrt", "rsqrt", "exp", "log"})
"""Functions that make an integer a float of the default type."""
_OF_FLOATS = frozenset({"sin", "cos", "tan", "asin", "acos", "tanh", "floor", "ceil", "round"})
_OF_INTEGERS = frozenset({"~", "popcnt", "clz", "ffs"})


class Arithmetic:
    """Operations on single numbers, with these default types.

    A rule for two types is built when they first meet, and kept.
    """

    plain_casts: Mapping[str, Rule] = CASTS
    """Conversions of numbers that are not the kernel's own, such as arguments, by the type that they give."""

    casts: Mapping[str, Rule]
    """Conversions in a kernel: a float that it holds as Python's has the default type first, `0.1` in `x * 0.1`."""

    def __init__(self, defaults: Defaults) -> None:
        self.defaults = defaults
        self.casts = {kind: self._round_literals(kind) for kind in TYPES}
        self._binary: dict[str, dict[tuple[type, type], Rule]] = {}
        self._unary: dict[tuple[str, str], Rule] = {}

    def _round_literals(self, kind: str) -> Rule:
        cast, default = self.plain_casts[kind], self.plain_casts[self.defaults.fp]
        if kind not in FLOATS or bits_of(kind) <= bits_of(self.defaults.fp):
            return cast
        return lambda value: cast(default(value) if type(value) is float else value)

    def kind_of(self, value: Any) -> str:
        """Return the type of a number. Raises TypeError for anything else."""
        kind = type(value)
        name = KINDS.get(kind)
        if name is None:
            if kind not in _LITERALS and not isinstance(value, _LITERALS):
                raise TypeError(f"a {kind.__name__} where a number is wanted: {value!r:.80}")
            name = self._kind_of_literal(kind)
        return name

    def _kind_of_literal(self, kind: type) -> str:
        if issubclass(kind, bool):
            return "u1"
        return self.defaults.fp if issubclass(kind, float) else self.defaults.ip

    def give_type(self, value: Any) -> Any:
        """Return a number as one of the run: Python's own gets the default type."""
        return value if type(value) in KINDS else self.casts[self.kind_of(value)](value)

    def unary(self, name: str, value: Any) -> Any:
        """Return the result of an operation on one number."""
        kind = self.kind_of(value)
        if kind not in FLOATS and name in _WIDENING:
            kind = self.defaults.fp
        if (kind in FLOATS and name in _OF_INTEGERS) or (kind not in FLOATS and name in _OF_FLOATS):
            raise TypeError(f"`{name}` of {kind}")
        number = value if KINDS.get(type(value)) == kind else self.casts[kind](value)
        rule = self._unary.get((name, kind))
        if rule is None:
            rule = self._unary[name, kind] = self.find_unary(name, kind)
        return rule(number)

    def find_unary(self, name: str, kind: str) -> Rule:  # other arithmetic depends on the type
        """Return the rule of an operation on one number of a type."""
        return UNARY_RULES[name]

    def rule_for(self, name: str, one: type, other: type) -> Rule:
        """Return the function that does an operation on numbers of two Python types."""
        rules = self._binary.setdefault(name, {})
        rule = rules.get((one, other))
        if rule is None:
            rule = rules[one, other] = self._build(name, one, other)
        return rule

    def rules_for(self, name: str) -> dict[tuple[type, type], Rule]:
        """Return the rules of an operation that have been built so far, by the types of both numbers."""
        return self._binary.setdefault(name, {})

    def _build(self, name: str, one: type, other: type) -> Rule:
        are_known = [kind not in KINDS and issubclass(kind, _LITERALS) for kind in (one, other)]
        if all(are_known) and name in PYTHON:
            return PYTHON[name]
        left, right = (KINDS.get(kind) or self._kind_of_literal(kind) for kind in (one, other))
        if name in SHIFTS:
            self._refuse_floats(name, left, right)
            return _adapt(self.find_shift(name, left), self.casts[left] if are_known[0] else None, None)
        if name in ("/", "atan2"):
            left, right = (kind if kind in FLOATS else self.defaults.fp for kind in (left, right))
        common = promote(left, right)
        if name == "pow" and not {left, right} & FLOATS:
            common = left
        if name == "atan2" and common == "f16":
            common = "f32"
        if name in ("&", "|", "^"):
            self._refuse_floats(name, left, right)
        rule = self.find_binary(name, common)
        convert = self.casts[common]
        return _adapt(rule, *(None if KINDS.get(kind) == common else convert for kind in (one, other)))

    def find_binary(self, name: str, common: str) -> Rule:
        """Return the rule of an operation on two numbers of one type. Raises TypeError if there is none."""
        if name in COMPARISONS:
            return COMPARISONS[name]
        rules = FLOAT_RULES if common in FLOATS else INTEGER_RULES
        if common == "u1" and name in TRUTH_RULES:
            rules = TRUTH_RULES
        if name not in rules:
            raise TypeError(f"`{name}` of {common}")
        return rules[name]

    def find_shift(self, name: str, kind: str) -> Rule:  # other arithmetic depends on the type
        """Return the rule of a shift of an integer of one type."""
        return SHIFTS[name]

    def reinterpret(self, value: Any, kind: str) -> Any:
        """Return the number of another type that has the same bits."""
        return value.view(TYPES[kind])

    def _refuse_floats(self, name: str, *kinds: str) -> None:
        if any(kind in FLOATS for kind in kinds):
            raise TypeError(f"`{name}` of {' and '.join(kinds)}")


def _adapt(rule: Rule, left: Rule | None, right: Rule | None) -> Rule:
    """A rule for numbers of which some must be converted first."""
    if left is not None and right is not None:
        return lambda one, other: rule(left(one), right(other))
    if left is not None:
        return lambda one, other: rule(left(one), other)
    if right is not None:
        return lambda one, other: rule(one, right(other))
    return rule
