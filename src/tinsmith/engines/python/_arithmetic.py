"""Arithmetic of the Python engine: result types, and the NumPy functions that compute an operation on scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._operators import COMPARISONS
from ._numbers import (
    CASTS,
    FLOAT_RULES,
    FLOATS,
    INTEGER_RULES,
    KINDS,
    LITERALS,
    PYTHON,
    SHIFTS,
    TRUTH_RULES,
    TYPES,
    UNARY_RULES,
    Defaults,
    Rule,
    bits_of,
    promote,
)

_WIDENING = frozenset({"sqrt", "rsqrt", "exp", "log"})
"""Functions that convert an integer operand to the default float type first."""
_OF_FLOATS = frozenset({"sin", "cos", "tan", "asin", "acos", "tanh", "floor", "ceil", "round"})
_OF_INTEGERS = frozenset({"~", "popcnt", "clz", "ffs"})


class Arithmetic:
    """Operations on scalars, with given default types for Python's numbers.

    The function that computes an operation on two types (its rule) is built when the two first meet, and cached.
    """

    plain_casts: Mapping[str, Rule] = CASTS
    """Conversions of numbers from outside the kernel, such as arguments, by the name of the target type."""

    casts: Mapping[str, Rule]
    """Conversions inside a kernel, by the name of the target type.

    A Python float, such as the `0.1` of `x * 0.1`, is rounded to the default type first.
    """

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
        """Return the type name of a number, such as "f32". Raise TypeError for anything else."""
        kind = type(value)
        name = KINDS.get(kind)
        if name is None:
            if kind not in LITERALS and not isinstance(value, LITERALS):
                raise TypeError(f"expected a number, got a {kind.__name__}: {value!r:.80}")
            name = self._kind_of_literal(kind)
        return name

    def _kind_of_literal(self, kind: type) -> str:
        if issubclass(kind, bool):
            return "u1"
        return self.defaults.fp if issubclass(kind, float) else self.defaults.ip

    def give_type(self, value: Any) -> Any:
        """Convert a Python number to a NumPy scalar of the default type; return NumPy scalars unchanged."""
        return value if type(value) in KINDS else self.casts[self.kind_of(value)](value)

    def unary(self, name: str, value: Any) -> Any:
        """Compute a unary operation on a number."""
        kind = self.kind_of(value)
        if kind not in FLOATS and name in _WIDENING:
            kind = self.defaults.fp
        if (kind in FLOATS and name in _OF_INTEGERS) or (kind not in FLOATS and name in _OF_FLOATS):
            raise TypeError(f"`{name}` is not defined for {kind}")
        number = value if KINDS.get(type(value)) == kind else self.casts[kind](value)
        rule = self._unary.get((name, kind))
        if rule is None:
            rule = self._unary[name, kind] = self.find_unary(name, kind)
        return rule(number)

    def find_unary(self, name: str, kind: str) -> Rule:  # other arithmetic depends on the type
        """Return the function that computes a unary operation on a number of type `kind`."""
        return UNARY_RULES[name]

    def rule_for(self, name: str, one: type, other: type) -> Rule:
        """Return the function that computes a binary operation on numbers of two Python types.

        Build it on first use.
        """
        rules = self._binary.setdefault(name, {})
        rule = rules.get((one, other))
        if rule is None:
            rule = rules[one, other] = self._build(name, one, other)
        return rule

    def rules_for(self, name: str) -> dict[tuple[type, type], Rule]:
        """Return the table of functions built so far for a binary operation, by the types of both operands."""
        return self._binary.setdefault(name, {})

    def _build(self, name: str, one: type, other: type) -> Rule:
        are_known = [kind not in KINDS and issubclass(kind, LITERALS) for kind in (one, other)]
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
        """Return the function that computes a binary operation on two numbers of one type.

        Raise TypeError if there is none.
        """
        if name in COMPARISONS:
            return COMPARISONS[name]
        rules = FLOAT_RULES if common in FLOATS else INTEGER_RULES
        if common == "u1" and name in TRUTH_RULES:
            rules = TRUTH_RULES
        if name not in rules:
            raise TypeError(f"`{name}` is not defined for {common}")
        return rules[name]

    def find_shift(self, name: str, kind: str) -> Rule:  # other arithmetic depends on the type
        """Return the function that shifts an integer of type `kind`."""
        return SHIFTS[name]

    def reinterpret(self, value: Any, kind: str) -> Any:
        """Return the number of type `kind` that has the same bits as `value`."""
        return value.view(TYPES[kind])

    def _refuse_floats(self, name: str, *kinds: str) -> None:
        if any(kind in FLOATS for kind in kinds):
            raise TypeError(f"`{name}` is not defined for {' and '.join(kinds)}")


def _adapt(rule: Rule, left: Rule | None, right: Rule | None) -> Rule:
    """Return `rule` with its operands converted first by `left` and `right`; None leaves an operand as it is."""
    if left is not None and right is not None:
        return lambda one, other: rule(left(one), right(other))
    if left is not None:
        return lambda one, other: rule(left(one), other)
    if right is not None:
        return lambda one, other: rule(one, right(other))
    return rule


class NanArithmetic(Arithmetic):
    """Arithmetic that raises FloatingPointError if a result is NaN although no operand is."""

    def find_unary(self, name: str, kind: str) -> Rule:
        rule = super().find_unary(name, kind)
        return _raise_on_nan(name, rule) if kind in FLOATS else rule

    def find_binary(self, name: str, common: str) -> Rule:
        rule = super().find_binary(name, common)
        return _raise_on_nan(name, rule) if common in FLOATS and name not in COMPARISONS else rule


def _raise_on_nan(name: str, rule: Rule) -> Rule:
    def compute_and_check(*operands: Any) -> Any:
        result = rule(*operands)
        # Only NaN differs from itself.
        if result != result and all(one == one for one in operands):
            shown = [f"{one}" for one in operands]
            is_infix = len(shown) == 2 and not name.isidentifier()
            operation = f"{shown[0]} {name} {shown[1]}" if is_infix else f"{name}({', '.join(shown)})"
            raise FloatingPointError(f"{operation} is NaN")
        return result

    return compute_and_check
