"""Evaluation of expressions with numpy, for many values of their variables at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..engines import PYTHON_OPERATORS
from ..ir import Operator, Type, nodes, types, walk
from ._accesses import is_computable

Numbers: TypeAlias = np.ndarray
"""Whole numbers (int64) or floats, one for each assignment of the variables."""


class Result(NamedTuple):
    """Numbers of an expression, and for which assignments they are defined: nothing is divided by zero."""

    numbers: Numbers
    is_defined: np.ndarray


def evaluate(expr: nodes.Expr, values: Callable[[nodes.Expr], Numbers | None]) -> Result | None:
    """Evaluate an expression with numpy, for many values of its variables at once.

    Return None if the expression cannot be computed, or if the values of a variable are unknown.

    Args:
        expr: the expression.
        values: returns an array of values for a local, a size or an argument, or None if they are unknown.
    """
    return _evaluate(expr, values) if is_computable(expr) else None


def _evaluate(expr: nodes.Expr, values: Callable[[nodes.Expr], Numbers | None]) -> Result | None:
    match expr:
        case nodes.Const(value, kind):
            number = value if types.is_float(kind) else _wrap(int(value))
            return Result(np.array([number], _dtype(kind)), np.array([True]))
        case nodes.Local() | nodes.Size() | nodes.Argument():
            known = values(expr)
            return None if known is None else Result(known, np.array([True]))
    operands = [_evaluate(one, values) for one in walk.operands(expr)]
    known = [one for one in operands if one is not None]
    if len(known) < len(operands):
        return None
    is_defined = np.logical_and.reduce(np.broadcast_arrays(*(one.is_defined for one in known)))
    # numpy warns where floats overflow or are undefined, which is expected of numbers that are only tried.
    with np.errstate(all="ignore"):
        return _compute(expr, [one.numbers for one in known], is_defined)


def _compute(expr: nodes.Expr, numbers: Sequence[Numbers], is_defined: np.ndarray) -> Result | None:
    """Apply the outermost operation of an expression to arrays of operands, elementwise; None if it is unsupported.

    `is_defined` marks the elements whose operands are defined.
    """
    dtype = _dtype(expr.type)
    match expr:
        case nodes.Cast(value):
            # A conversion of NaN or infinity to an integer has no defined result.
            is_number = np.isfinite(numbers[0]) if types.is_float(value.type) else True
            return Result(np.where(is_number, numbers[0], 0).astype(dtype), is_defined & is_number)
        case nodes.Select():
            return Result(np.where(numbers[0] != 0, numbers[1], numbers[2]).astype(dtype), is_defined)
        case nodes.Unary(word) if word in _UNARY:
            return Result(_UNARY[word](numbers[0].astype(dtype)).astype(dtype), is_defined)
        case nodes.Binary(Operator.FLOOR_DIV | Operator.MOD as word):
            is_whole = numbers[1] != 0
            # Divided by 1 where the divisor is 0: the result is marked as undefined.
            divisor = np.where(is_whole, numbers[1], 1).astype(numbers[1].dtype)
            return Result(_BINARY[word](numbers[0], divisor).astype(dtype), is_defined & is_whole)
        case nodes.Binary(Operator.SHIFT_LEFT | Operator.SHIFT_RIGHT | Operator.SHIFT_RIGHT_UNSIGNED as word):
            # By other numbers, a shift of an int64 is undefined.
            is_shift = (numbers[1] >= 0) & (numbers[1] < 64)
            count = np.where(is_shift, numbers[1], 0)
            if word == Operator.SHIFT_RIGHT_UNSIGNED:
                return Result(_shift_unsigned(numbers[0], count, expr.type), is_defined & is_shift)
            return Result(_BINARY[word](numbers[0], count), is_defined & is_shift)
        case nodes.Binary(Operator.ADD | Operator.SUB | Operator.MUL | Operator.DIV as word) if types.is_float(
            expr.type
        ):
            left, right = (one.astype(dtype) for one in numbers)
            return Result(_BINARY[word](left, right), is_defined)
        case nodes.Binary(word) if word in _BINARY:
            return Result(_BINARY[word](*numbers).astype(dtype), is_defined)
    return None


def _dtype(kind: Type) -> np.dtype:
    """Return the dtype of numbers of a type: integers are int64, floats what they are in a kernel."""
    return _FLOATS.get(kind, np.dtype(np.int64))


def _wrap(value: int) -> int:
    """Return a number as int64, which the largest ones of u64 are not."""
    return (value + 2**63) % 2**64 - 2**63


def _shift_unsigned(numbers: Numbers, count: Numbers, kind: Type) -> Numbers:
    """Return integers of a type whose bits are shifted right, and filled with zeros."""
    bits = numbers.astype(np.uint64) & np.uint64(2 ** types.width(kind) - 1)
    # Not shifted, a negative number stays one.
    return np.where(count == 0, numbers, (bits >> count.astype(np.uint64)).astype(np.int64))


_FLOATS = {Type.F16: np.dtype(np.float16), Type.F32: np.dtype(np.float32), Type.F64: np.dtype(np.float64)}
_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "~": operator.invert,
    "abs": np.abs,
    "not": np.logical_not,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
}
_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    **{sign: compute for sign, compute in PYTHON_OPERATORS.items() if sign != "pow"},
    "min": np.minimum,
    "max": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
}
