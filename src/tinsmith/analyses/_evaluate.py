"""Numbers of integer expressions, each for many values of its variables at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..source.ir import nodes, walk
from ._accesses import is_computable

Numbers: TypeAlias = np.ndarray
"""Whole numbers (int64), one for each assignment of the variables."""


class Result(NamedTuple):
    """Numbers of an expression, and for which assignments they are defined: nothing is divided by zero."""

    numbers: Numbers
    is_defined: np.ndarray


def evaluate(expr: nodes.Expr, values: Callable[[nodes.Expr], Numbers | None]) -> Result | None:
    """Return the numbers of an expression of integers; None if parts of it are opaque, or operations on floats.

    Args:
        expr: the expression.
        values: returns the numbers of a local, a size or an argument; None where these are not known.
    """
    return _evaluate(expr, values) if is_computable(expr) else None


def _evaluate(expr: nodes.Expr, values: Callable[[nodes.Expr], Numbers | None]) -> Result | None:
    match expr:
        case nodes.Const(value):
            return Result(np.array([_wrap(int(value))]), np.array([True]))
        case nodes.Local() | nodes.Size() | nodes.Argument():
            known = values(expr)
            return None if known is None else Result(known, np.array([True]))
    operands = [_evaluate(one, values) for one in walk.operands(expr)]
    known = [one for one in operands if one is not None]
    if len(known) < len(operands):
        return None
    is_defined = np.logical_and.reduce(np.broadcast_arrays(*(one.is_defined for one in known)))
    numbers = [one.numbers for one in known]
    match expr:
        case nodes.Cast():
            return Result(numbers[0], is_defined)
        case nodes.Select():
            return Result(np.where(numbers[0] != 0, numbers[1], numbers[2]), is_defined)
        case nodes.Unary(word) if word in _UNARY:
            return Result(_UNARY[word](*numbers).astype(np.int64), is_defined)
        case nodes.Binary("//" | "%" as word):
            is_whole = numbers[1] != 0
            return Result(_BINARY[word](numbers[0], np.where(is_whole, numbers[1], 1)), is_defined & is_whole)
        case nodes.Binary("<<" | ">>" | ">>>" as word):
            is_shift = (numbers[1] >= 0) & (numbers[1] < 64)
            return Result(_BINARY[word](numbers[0], np.where(is_shift, numbers[1], 0)), is_defined & is_shift)
        case nodes.Binary(word) if word in _BINARY:
            return Result(_BINARY[word](*numbers).astype(np.int64), is_defined)
    return None


def _wrap(value: int) -> int:
    """Return a number as int64, which the largest ones of u64 are not."""
    return (value + 2**63) % 2**64 - 2**63


_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "~": operator.invert,
    "abs": np.abs,
    "not": np.logical_not,
}
_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    ">>>": operator.rshift,
    "min": np.minimum,
    "max": np.maximum,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": np.logical_and,
    "or": np.logical_or,
}
