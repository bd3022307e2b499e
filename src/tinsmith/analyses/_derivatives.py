"""Derivatives of operations: the one table, for adjoint and tangent.

Where a function has a kink or its derivative is infinite the slopes are torch's, which the interpreter has too:
`abs` has 0 at 0; a tie of `min` or `max` gives each side half, but a tie with a 0 that is written out gives 0, as
torch.relu; those of a length and of `atan2` are 0 at 0;
a power's by its base is 0 where the exponent is 0, and by its exponent where the base is 0 and the exponent not
negative. `floor`, `ceil`, `round`, `sgn`, `//`, comparisons and whole numbers have none, and do not appear.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ..ir import (
    Misfit,
    Operator,
    Type,
    cast,
    compare,
    constant,
    either,
    is_constant,
    is_not_zero,
    minus,
    negate,
    nodes,
    over,
    plus,
    times,
    types,
)

Operation: TypeAlias = nodes.Unary | nodes.Binary | nodes.Cast
Contribution: TypeAlias = Callable[[nodes.Expr], nodes.Expr]


def _same(seed: nodes.Expr) -> nodes.Expr:
    return seed


class Slope(NamedTuple):
    """The derivative of an operation by one of its operands.

    Attributes:
        operand: the operand, as the operation has it.
        of: adjoint of the result -> what it adds to the operand's, in the operand's type: the product with the partial
            derivative. Linear in the seed, which it may name more than once.
        is_singular: it can be infinite or not a number where the seed is 0 and the operands are finite.
        along: the same product the other way: tangent of the operand -> what it adds to the result's, in the
            operation's type.
    """

    operand: nodes.Expr
    of: Contribution
    is_singular: bool = False
    along: Contribution = _same


def slopes(operation: Operation, value: nodes.Expr) -> tuple[Slope, ...]:
    """Return the derivatives of an operation by its floating operands; those that are 0 everywhere are left out.

    Args:
        operation: what was computed.
        value: its result, of its type, as an expression that costs nothing: a local.

    Raises:
        Misfit: an operation on floats that the table has not, as `raw_mod`.

    Example:
        >>> x = nodes.Local("x", "f32")
        >>> (slope,) = slopes(nodes.Unary("exp", x, "f32"), nodes.Local("y", "f32"))
        >>> slope.of(nodes.Local("seed", "f32"))  # seed * y
        Binary(operator='*', left=Local(name='seed', type='f32'), right=Local(name='y', type='f32'), type='f32')
    """
    if isinstance(operation, nodes.Cast):
        source, kind = operation.value.type, operation.type
        # A cast to or from integers has steps, and the derivative 0.
        if not types.is_float(source) or not types.is_float(kind):
            return ()
        return (Slope(operation.value, lambda seed: cast(seed, source), along=lambda seed: cast(seed, kind)),)
    if not types.is_float(operation.type) or operation.operator in _FLAT:
        return ()
    candidates = _of_unary(operation, value) if isinstance(operation, nodes.Unary) else _of_binary(operation, value)
    return tuple(_in_type_of(slope, operation.type) for slope in candidates if _is_variable(slope.operand))


def is_flat(operator: Operator) -> bool:
    """Return True if an operation on floats has derivative 0 wherever it has one."""
    return operator in _FLAT


_FLAT = frozenset({"floor", "ceil", "round", "sgn", "//"})


def _is_variable(operand: nodes.Expr) -> bool:
    return types.is_float(operand.type) and not is_constant(operand)


def _in_type_of(slope: Slope, kind: Type) -> Slope:
    """Return a slope whose product is computed in the operation's type, and then cast to its operand's or its own."""
    product, target = slope.of, slope.operand.type
    # The adjoint has the operand's type, the tangent that of the result. In between, the product is as exact as the
    # operation.
    return slope._replace(
        of=lambda seed: cast(product(cast(seed, kind)), target), along=lambda seed: product(cast(seed, kind))
    )


# Of one number ----------------------------------------------------------------------------------


class _One(NamedTuple):
    """An operation on one number: x, its result y."""

    x: nodes.Expr
    y: nodes.Expr

    def number(self, value: float) -> nodes.Expr:
        return constant(value, self.y.type)

    def times(self, factor: nodes.Expr) -> Contribution:
        return lambda seed: times(seed, factor)

    def call(self, name: Operator, value: nodes.Expr | None = None) -> nodes.Expr:
        return nodes.Unary(name, self.x if value is None else value, self.y.type)


def _abs(one: _One) -> Contribution:
    zero = one.number(0)
    below = either(compare(Operator.LT, one.x, zero), one.number(-1), zero)
    return one.times(either(compare(Operator.GT, one.x, zero), one.number(1), below))


def _half_inverse(one: _One) -> Contribution:
    return lambda seed: over(seed, times(one.number(2), one.y))


def _norm(one: _One) -> Contribution:
    # The root of a sum of squares at 0: torch's convention for a norm, where the root itself would give infinity times
    # 0.
    half, zero = _half_inverse(one), one.number(0)
    return lambda seed: either(is_not_zero(one.y), half(seed), zero)


def _rsqrt(one: _One) -> Contribution:
    return one.times(times(one.number(-0.5), times(one.y, times(one.y, one.y))))


def _asin(one: _One) -> Contribution:
    root = one.call(Operator.SQRT, minus(one.number(1), times(one.x, one.x)))
    return lambda seed: over(seed, root)


def _acos(one: _One) -> Contribution:
    asin = _asin(one)
    return lambda seed: negate(asin(seed))


_UNARY: dict[str, tuple[Callable[[_One], Contribution], bool]] = {
    "neg": (lambda one: negate, False),
    "abs": (_abs, False),
    "sqrt": (_half_inverse, True),
    "norm": (_norm, False),
    "rsqrt": (_rsqrt, True),
    "exp": (lambda one: one.times(one.y), True),
    "log": (lambda one: lambda seed: over(seed, one.x), True),
    "sin": (lambda one: one.times(one.call(Operator.COS)), False),
    "cos": (lambda one: one.times(negate(one.call(Operator.SIN))), False),
    "tan": (lambda one: one.times(plus(one.number(1), times(one.y, one.y))), False),
    "asin": (_asin, True),
    "acos": (_acos, True),
    "tanh": (lambda one: one.times(minus(one.number(1), times(one.y, one.y))), False),
}
"""By operator: the contribution, and whether it is singular (`exp` is: it overflows)."""


def _of_unary(operation: nodes.Unary, value: nodes.Expr) -> tuple[Slope, ...]:
    rule, is_singular = _UNARY.get(operation.operator, (None, False))
    if rule is None:
        raise Misfit(f"the derivative of `{operation.operator}`")
    one = _One(cast(operation.value, operation.type), cast(value, operation.type))
    return (Slope(operation.value, rule(one), is_singular),)


# Of two -----------------------------------------------------------------------------------------


class _Two(NamedTuple):
    """An operation on two numbers: a and b in its type, its result y; `left` and `right` in their own types."""

    left: nodes.Expr
    right: nodes.Expr
    a: nodes.Expr
    b: nodes.Expr
    y: nodes.Expr

    def number(self, value: float) -> nodes.Expr:
        return constant(value, self.y.type)

    @property
    def exponent(self) -> nodes.Expr:
        """The right operand as the exponent of a power: an integer stays an integer."""
        return self.b if types.is_float(self.right.type) else self.right


def _sum(two: _Two) -> list[Slope]:
    return [Slope(two.left, _same), Slope(two.right, _same)]


def _difference(two: _Two) -> list[Slope]:
    return [Slope(two.left, _same), Slope(two.right, negate)]


def _product(two: _Two) -> list[Slope]:
    return [
        Slope(two.left, lambda seed: times(seed, two.b)),
        Slope(two.right, lambda seed: times(seed, two.a)),
    ]


def _quotient(two: _Two) -> list[Slope]:
    # A known divisor that is not 0 leaves the derivative finite.
    is_singular = not is_constant(two.b) or is_constant(two.b, 0)
    return [
        Slope(two.left, lambda seed: over(seed, two.b), is_singular),
        Slope(two.right, lambda seed: negate(times(seed, over(two.y, two.b))), is_singular),
    ]


def _remainder(two: _Two) -> list[Slope]:
    # `a % b` is `a - b * (a // b)`, and `a // b` is constant almost everywhere.
    whole = nodes.Binary(Operator.FLOOR_DIV, two.a, two.b, two.y.type)
    # As of a quotient.
    is_singular = not is_constant(two.b) or is_constant(two.b, 0)
    return [Slope(two.left, _same), Slope(two.right, lambda seed: negate(times(seed, whole)), is_singular)]


def _extreme(two: _Two, loses: Operator, loses_or_ties: Operator) -> list[Slope]:
    """Return the slopes of "max" (a side that is less gets nothing) or "min".

    Nothing reaches the side that lost, not even times 0: `sqrt(max(x, 0))` has a derivative where x < 0. Where both are
    equal, each gets half; nothing if the other is a 0 that is written out: a rectifier.
    """

    def share(one: nodes.Expr, other: nodes.Expr) -> Contribution:
        # `max(x, 0.0)` is how a kernel writes torch's relu, whose derivative at 0 is 0.
        if is_constant(other, 0):
            is_off = compare(loses_or_ties, one, other)
            return lambda seed: either(is_off, two.number(0), seed)
        tie, lost = compare(Operator.EQ, one, other), compare(loses, one, other)

        def contribution(seed: nodes.Expr) -> nodes.Expr:
            return either(tie, times(two.number(0.5), seed), either(lost, two.number(0), seed))

        return contribution

    return [Slope(two.left, share(two.a, two.b)), Slope(two.right, share(two.b, two.a))]


def _atan2(two: _Two) -> list[Slope]:
    square, zero = plus(times(two.a, two.a), times(two.b, two.b)), two.number(0)

    def along(side: nodes.Expr) -> Contribution:
        # At the origin the angle is undefined; torch's derivative there is 0, not 0 / 0.
        return lambda seed: either(is_not_zero(square), times(seed, over(side, square)), zero)

    return [Slope(two.left, along(two.b)), Slope(two.right, along(negate(two.a)))]


def _power(two: _Two) -> list[Slope]:
    by_exponent = Slope(two.right, lambda seed: times(seed, _by_exponent(two)), not _is_positive(two.a))
    return [*_by_base(two), by_exponent]


def _is_positive(expr: nodes.Expr) -> bool:
    return isinstance(expr, nodes.Const) and expr.value > 0


def _by_base(two: _Two) -> list[Slope]:
    if isinstance(two.right, nodes.Const):
        exponent = two.right.value
        if exponent == 0:
            return []
        factor = times(two.number(exponent), _known_power(two, exponent - 1))
        # 1 and 2 have the derivatives 1 and 2 a. Those of other powers may be infinite at 0, or overflow.
        return [Slope(two.left, lambda seed: times(seed, factor), exponent not in (1, 2))]
    exponent, kind = two.exponent, two.exponent.type
    lower = nodes.Binary(Operator.POW, two.a, minus(exponent, constant(1, kind)), two.y.type)
    # `a ** -1` is infinite at 0, and times the exponent 0 it would be NaN.
    is_zero = compare(Operator.EQ, exponent, constant(0, kind))

    def contribution(seed: nodes.Expr) -> nodes.Expr:
        return either(is_zero, two.number(0), times(seed, times(two.b, lower)))

    return [Slope(two.left, contribution, True)]


def _known_power(two: _Two, exponent: float) -> nodes.Expr:
    """Return the expression of `base ** exponent` for a known exponent: `a * a` for 2, for example."""
    match exponent:
        case 0:
            return two.number(1)
        case 1:
            return two.a
        case 2:
            return times(two.a, two.a)
    return nodes.Binary(Operator.POW, two.a, constant(exponent, two.exponent.type), two.y.type)


def _by_exponent(two: _Two) -> nodes.Expr:
    """Return `y * log(a)`, the derivative of a power by its exponent."""
    if isinstance(two.left, nodes.Const) and _is_positive(two.left):
        return times(two.number(math.log(two.left.value)), two.y)
    zero = two.number(0)
    # `0 ** b` is constant in b > 0, but `log(0)` is infinite, and times the value 0 it would be NaN.
    is_flat = nodes.Binary(Operator.AND, compare(Operator.EQ, two.a, zero), compare(Operator.GE, two.b, zero), Type.U1)
    return either(is_flat, zero, times(two.y, nodes.Unary(Operator.LOG, two.a, two.y.type)))


_BINARY: dict[str, Callable[[_Two], list[Slope]]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "%": _remainder,
    "max": lambda two: _extreme(two, Operator.LT, Operator.LE),
    "min": lambda two: _extreme(two, Operator.GT, Operator.GE),
    "atan2": _atan2,
    "pow": _power,
    "straight_through": lambda two: [Slope(two.right, _same)],
}


def _of_binary(operation: nodes.Binary, value: nodes.Expr) -> list[Slope]:
    rule = _BINARY.get(operation.operator)
    if rule is None:
        raise Misfit(f"the derivative of `{operation.operator}`")
    kind = operation.type
    a, b = cast(operation.left, kind), cast(operation.right, kind)
    return rule(_Two(operation.left, operation.right, a, b, cast(value, kind)))
