"""Arithmetic that stops at the first NaN."""

from __future__ import annotations

from typing import Any

from ._numbers import COMPARISONS, FLOATS, Arithmetic, Rule


class NanArithmetic(Arithmetic):
    """Arithmetic that raises FloatingPointError where a result is NaN and no operand is."""

    def find_unary(self, name: str, kind: str) -> Rule:
        rule = super().find_unary(name, kind)
        return _raise_on_nan(name, rule) if kind in FLOATS else rule

    def find_binary(self, name: str, common: str) -> Rule:
        rule = super().find_binary(name, common)
        return _raise_on_nan(name, rule) if common in FLOATS and name not in COMPARISONS else rule


def _raise_on_nan(name: str, rule: Rule) -> Rule:
    def compute_and_check(*operands: Any) -> Any:
        result = rule(*operands)
        # NaN alone differs from itself.
        if result != result and all(one == one for one in operands):
            shown = [f"{one}" for one in operands]
            is_infix = len(shown) == 2 and not name.isidentifier()
            operation = f"{shown[0]} {name} {shown[1]}" if is_infix else f"{name}({', '.join(shown)})"
            raise FloatingPointError(f"{operation} is NaN")
        return result

    return compute_and_check
