"""Evaluate sizes before a launch: an expression as a number now, or as text of Python for later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import getitem
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from ..analyses import expand
from ..engines import PYTHON_OPERATORS
from ..ir import Operator, Type, nodes
from ._slots import trips_of

_RULES: dict[str, Callable[[int, int], int]] = {
    **{sign: PYTHON_OPERATORS[sign] for sign in ("+", "-", "*", "//", "%", "<<", ">>")},
    "min": min,
    "max": max,
}
_PRECEDENCE = {"*": 1, "//": 1, "%": 1, "+": 2, "-": 2, "<<": 3, ">>": 3}
"""Of the operators between two operands: a smaller number binds more tightly."""
Leaf: TypeAlias = nodes.Const | nodes.Size | nodes.Argument
T = TypeVar("T")


def can_evaluate(expr: nodes.Expr) -> bool:
    """Return True if an integer's value follows from sizes and arguments, so that it is known before the launch."""
    match expr:
        case nodes.Const() | nodes.Size() | nodes.Argument():
            return expr.type in (Type.I32, Type.I64, Type.U1)
        case nodes.Binary():
            return expr.operator in _RULES and can_evaluate(expr.left) and can_evaluate(expr.right)
        case nodes.Unary():
            return expr.operator == Operator.NEG and can_evaluate(expr.value)
        case nodes.Cast():
            return expr.type in (Type.I32, Type.I64) and can_evaluate(expr.value)
        case _:
            return False


def extent(
    bounds: Sequence[tuple[nodes.Expr | None, nodes.Expr | None]],
    definitions: Mapping[str, nodes.Expr] = MappingProxyType({}),
) -> nodes.Expr | None:
    """Return the number of a loop's iterations; None if it does not follow from sizes and arguments.

    `definitions` are what locals in the bounds are computed from.
    """
    expanded = [[None if one is None else expand(one, (), definitions) for one in pair] for pair in bounds]
    known = [(a, b) for a, b in expanded if a is not None and b is not None and can_evaluate(a) and can_evaluate(b)]
    return trips_of(known) if len(known) == len(bounds) else None


def formula_text(expr: nodes.Expr, size: Callable[[str, int], str], argument: Callable[[str], str]) -> str:
    """Return an expression that `can_evaluate` accepts as Python: a name, a call, a number, or enclosed in parentheses.

    Args:
        expr: the expression.
        size: the text of an array's size along an axis.
        argument: the text of an argument.
    """

    def leaf(one: Leaf) -> str:
        match one:
            case nodes.Const():
                return str(int(one.value))
            case nodes.Size():
                return size(one.array, one.axis)
        entry = "".join(f"[{part}]" for part in one.entry)
        return f"int({argument(one.name)}{entry})"

    # Text and its precedence. Python's parser takes at most 200 nested parentheses, so none are redundant.
    def join(operator: Operator, *operands: tuple[str, int]) -> tuple[str, int]:
        if operator in ("min", "max"):
            return f"{operator}({', '.join(text for text, _ in operands)})", 0
        if len(operands) == 1:
            return f"(-{_enclose(operands[0], 0)})", 0
        # Operators group from the left: an operand of the same precedence needs parentheses on the right side only.
        own = _PRECEDENCE[operator]
        left, right = operands
        return f"{_enclose(left, own)} {operator} {_enclose(right, own - 1)}", own

    return _enclose(_fold(expr, lambda one: (leaf(one), 0), join), 0)


def _enclose(operand: tuple[str, int], loosest: int) -> str:
    text, precedence = operand
    return text if precedence <= loosest else f"({text})"


def evaluate(expr: nodes.Expr, shapes: Mapping[str, Sequence[int]], arguments: Mapping[str, Any]) -> int:
    """Return the value of an expression that `can_evaluate` accepts."""

    def leaf(one: Leaf) -> int:
        match one:
            case nodes.Const():
                return int(one.value)
            case nodes.Size():
                return shapes[one.array][one.axis]
        return int(reduce(getitem, one.entry, arguments[one.name]))

    return _fold(expr, leaf, lambda operator, *operands: _RULES[operator](*operands) if operands[1:] else -operands[0])


def _fold(expr: nodes.Expr, leaf: Callable[[Leaf], T], apply: Callable[..., T]) -> T:
    match expr:
        case nodes.Const() | nodes.Size() | nodes.Argument():
            return leaf(expr)
        case nodes.Binary():
            return apply(expr.operator, _fold(expr.left, leaf, apply), _fold(expr.right, leaf, apply))
        case nodes.Unary():
            return apply("-", _fold(expr.value, leaf, apply))
        case nodes.Cast():
            return _fold(expr.value, leaf, apply)
        case _:
            raise AssertionError(f"unexpected {expr} in an expression that must be known before the launch")
