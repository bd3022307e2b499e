"""Integers: what a result would have been without wrapping around, and whether its type holds it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from ...engines import Number

_FAR = 128
"""More bits than any type has."""


def _power(base: int, exponent: int) -> int:
    return base ** min(exponent, _FAR) if exponent >= 0 else 0


def _shift_left(value: int, count: int) -> int:
    return value << count if 0 <= count < _FAR else value << _FAR


_EXACT: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "neg": operator.neg,
    "abs": abs,
    "<<": _shift_left,
    "pow": _power,
}
_CALLED = {"neg": "-({})", "abs": "abs({})", "pow": "{} ** {}"}


def is_unsigned(kind: str) -> bool:
    return kind[0] == "u"


def limits(kind: str) -> tuple[int, int]:
    """The least and the greatest number of a type."""
    bits = int(kind[1:])
    return (0, 2**bits - 1) if is_unsigned(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def overflow(name: str, kind: str, operands: tuple[Number, ...]) -> int | None:
    """What an operation on integers gives that `kind` does not hold; None where all is well."""
    exact = _EXACT.get(name)
    if exact is None or (
        name == "<<" and is_unsigned(kind)
    ):  # bits shifted out of an unsigned number are not a mistake
        return None
    value = exact(*operands)
    least, greatest = limits(kind)
    return None if least <= value <= greatest else value


def loses_bits(kind: str, value: Number) -> bool:
    """Whether a cast to an integer type loses more than a fraction: the bits of -1 as unsigned are kept."""
    if kind == "u1":
        return False
    least, greatest = limits(kind)
    if isinstance(value, torch.Tensor):
        number = value.item()
        return not math.isfinite(number) or not least <= int(number) <= greatest
    return not -(2 ** int(kind[1:]) // 2) <= value < 2 ** int(kind[1:])


def format_operation(name: str, operands: tuple[Number, ...]) -> str:
    """An operation with its numbers, as the source would write it."""
    numbers = [str(one.item() if isinstance(one, torch.Tensor) else one) for one in operands]
    form = _CALLED.get(name, "{} " + name + " {}" if len(numbers) == 2 else name + "({})")
    return form.format(*numbers)
