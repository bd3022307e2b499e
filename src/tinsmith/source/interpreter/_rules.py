"""Rules: what each operation makes of its numbers.

On floats every rule is torch's own function, so torch's value and torch's derivative hold at kinks and
singular points too, but where the engine has another value: those are written out here. On integers
a rule is Python's, before it wraps around.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch

from ._casts import bits, wrapping

# Floats -----------------------------------------------------------------------------------------


def keep_zero_cotangents(rule: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A rule that passes a cotangent of 0 on as 0, also where its derivative is infinite or not a number.

    torch multiplies them, and gets NaN. Generated gradients do not (docs/reference/conventions.md).
    """

    def apply(*operands: torch.Tensor) -> torch.Tensor:
        value = rule(*operands)
        if value.grad_fn is not None:
            value.grad_fn.register_hook(_drop_slopes_of_zero)
        return value

    return apply


def _drop_slopes_of_zero(
    gradients: tuple[torch.Tensor | None, ...], cotangents: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    if any(one is not None and one.item() != 0.0 for one in cotangents):  # NaN is not 0
        return gradients
    # What is finite stays: where the graph goes on, it depends on the cotangent, whatever that is now.
    return tuple([one if one is None or one.isfinite() else torch.zeros_like(one) for one in gradients])


def _round(value: torch.Tensor) -> torch.Tensor:
    """To the nearest integer, halves away from zero (torch: to the even one). Derivative 0."""
    value = value.detach()
    whole = value.trunc()
    return whole + value.sign() if (value - whole).abs().item() >= 0.5 else whole


def _norm(square: torch.Tensor) -> torch.Tensor:
    """The length whose square is given. Derivative 0 at 0, as that of `torch.linalg.vector_norm`."""
    return square.sqrt() if square.item() else square * 0.0


def _floor_quotient(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`floor(left / right)`, derivative 0. torch's own is taken from the remainder, so `1.0 // 0.1` is 9 there."""
    return (left.detach() / right.detach()).floor()


def _modulo(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The remainder, with the sign of `right`. Derivatives 1 and `-(left // right)`, as `torch.remainder`'s."""
    return left - right * _floor_quotient(left, right)


def _straight_through(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The value of `left` with the derivative of `right`, which is finite where it has one."""
    value = left.detach()
    return value + (right - right.detach()) if value.isfinite() and right.isfinite() else value


FLOAT_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sgn": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": _round,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "norm": _norm,
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "tanh": torch.tanh,
}

FLOAT_BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "//": _floor_quotient,
    "%": _modulo,
    "min": torch.minimum,
    "max": torch.maximum,
    "atan2": torch.atan2,
    "pow": torch.pow,
    "straight_through": _straight_through,
}

SINGULAR = frozenset({"sqrt", "rsqrt", "exp", "log", "asin", "acos", "/", "pow"})
"""Operations whose derivative may be infinite or not a number."""

RECTIFIERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": torch.relu,
    "min": lambda value: 0.0 - torch.relu(-value),
}
"""Of a number and a 0 that is written out: derivative 0 where they are equal, not half."""

# Integers ---------------------------------------------------------------------------------------


def _truncated_quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _truncated_rest(left: int, right: int) -> int:
    return left - right * _truncated_quotient(left, right)


INTEGER_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "raw_div": _truncated_quotient,
    "raw_mod": _truncated_rest,
    "min": min,
    "max": max,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
DIVISIONS = frozenset({"//", "%", "raw_div", "raw_mod"})

COMPARE: dict[str, Callable[[int | float, int | float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def integer_unary(name: str, kind: str) -> Callable[[int], int] | None:
    """The rule of an operation on one integer of the type `kind`; None if there is none."""
    wrap, width = wrapping(kind), bits(kind)
    mask = (1 << width) - 1
    return {
        "neg": lambda value: wrap(-value),
        "abs": lambda value: wrap(abs(value)),
        "~": lambda value: wrap(~value),
        "sgn": lambda value: (value > 0) - (value < 0),
        "popcnt": lambda value: (value & mask).bit_count(),
        "clz": lambda value: width - (value & mask).bit_length(),
        "ffs": lambda value: (value & -value).bit_length(),
    }.get(name)


def integer_power(kind: str) -> Callable[[int, int], int]:
    """Of an integer by an integer. The engines define no negative exponent: the quotient, truncated, here."""
    wrap, modulus = wrapping(kind), 1 << bits(kind)

    def power(base: int, exponent: int) -> int:
        if exponent >= 0:
            return wrap(pow(base, exponent, modulus))
        return base ** (exponent % 2) if abs(base) == 1 else 0

    return power


def shift(name: str, kind: str) -> Callable[[int, int], int]:
    """`<<`, `>>` (keeps the sign) or `>>>` (fills with zeros); of a count beyond the width, undefined, the low bits."""
    wrap, width = wrapping(kind), bits(kind)
    mask, low = (1 << width) - 1, width - 1
    rules: dict[str, Callable[[int, int], int]] = {
        "<<": lambda value, count: wrap(value << (count & low)),
        ">>": lambda value, count: value >> (count & low),
        ">>>": lambda value, count: wrap((value & mask) >> (count & low)),
    }
    return rules[name]
