"""Sizes worked out before a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..source.ir import nodes
from ._algebra import constant, is_constant, times

_RULES: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}


def can_evaluate(expr: nodes.Expr) -> bool:
    """Whether sizes and arguments tell an integer's value before the launch."""
    match expr:
        case nodes.Const() | nodes.Size() | nodes.Argument():
            return expr.type in ("i32", "i64", "u1")
        case nodes.Binary():
            return expr.operator in _RULES and can_evaluate(expr.left) and can_evaluate(expr.right)
        case nodes.Unary():
            return expr.operator == "neg" and can_evaluate(expr.value)
        case nodes.Cast():
            return expr.type in ("i32", "i64") and can_evaluate(expr.value)
        case _:
            return False


def extent(bounds: Sequence[tuple[nodes.Expr | None, nodes.Expr | None]]) -> nodes.Expr | None:
    """The number of a loop's iterations, where sizes and arguments tell it."""
    known = [(a, b) for a, b in bounds if a is not None and b is not None and can_evaluate(a) and can_evaluate(b)]
    return trips(known) if len(known) == len(bounds) else None


def trips(bounds: Sequence[tuple[nodes.Expr, nodes.Expr]]) -> nodes.Expr:
    """The number of a loop's iterations."""
    total: nodes.Expr = constant(1, "i32")
    for first, end in bounds:
        size = end if is_constant(first, 0) else nodes.Binary("-", end, first, "i32")
        total = times(total, nodes.Binary("max", size, constant(0, "i32"), "i32"))
    return total


def formula_text(
    expr: nodes.Expr, size: Callable[[str, int], str], argument: Callable[[str], str], bind: Callable[[Any], str]
) -> str:
    """An expression that `can_evaluate` takes, as Python.

    Args:
        expr: the expression.
        size: the text of an array's size along an axis.
        argument: the text of an argument.
        bind: a name for a function.
    """
    match expr:
        case nodes.Const():
            return str(int(expr.value))
        case nodes.Size():
            return size(expr.array, expr.axis)
        case nodes.Argument():
            entry = "".join(f"[{part}]" for part in expr.entry)
            return f"int({argument(expr.name)}{entry})"
        case nodes.Binary():
            left, right = (formula_text(one, size, argument, bind) for one in (expr.left, expr.right))
            return f"{bind(_RULES[expr.operator])}({left}, {right})"
        case nodes.Unary():
            return f"-{formula_text(expr.value, size, argument, bind)}"
        case nodes.Cast():
            return formula_text(expr.value, size, argument, bind)
        case _:
            raise AssertionError(f"{expr} is not known before the launch")


def evaluated(expr: nodes.Expr, shapes: Mapping[str, Sequence[int]], arguments: Mapping[str, Any]) -> int:
    """The value of an expression that `can_evaluate` takes."""
    match expr:
        case nodes.Const():
            return int(expr.value)
        case nodes.Size():
            return shapes[expr.array][expr.axis]
        case nodes.Argument():
            value = arguments[expr.name]
            for part in expr.entry:
                value = value[part]
            return int(value)
        case nodes.Binary():
            left, right = (evaluated(one, shapes, arguments) for one in (expr.left, expr.right))
            return _RULES[expr.operator](left, right)
        case nodes.Unary():
            return -evaluated(expr.value, shapes, arguments)
        case nodes.Cast():
            return evaluated(expr.value, shapes, arguments)
        case _:
            raise AssertionError(f"{expr} is not known before the launch")
