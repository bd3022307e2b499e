"""Ranges: what is computed from numbers of known ranges lies in the range that is found."""

import random

import numpy as np
import pytest

from tinsmith.analyses import Range, Ranges
from tinsmith.ir import Operator, Type, nodes, types

KINDS = (Type.I8, Type.U8, Type.I16, Type.F64)
NUMPY = {Type.I8: np.int8, Type.U8: np.uint8, Type.I16: np.int16, Type.F64: np.float64}
ENDS = (-128, -127, -100, -3, 0, 1, 5, 100, 127, 128, 200, 255)
BINARY = {
    Operator.ADD: np.add,
    Operator.SUB: np.subtract,
    Operator.MUL: np.multiply,
    Operator.MIN: np.minimum,
    Operator.MAX: np.maximum,
}
UNARY = {Operator.NEG: np.negative, Operator.ABS: np.abs}


def draw(dice, locals_, depth):
    if not depth:
        return dice.choice(locals_)
    match dice.choice(["unary", "binary", "binary", "cast"]):
        case "unary":
            inner = draw(dice, locals_, depth - 1)
            return nodes.Unary(dice.choice(list(UNARY)), inner, inner.type)
        case "binary":
            left, right = draw(dice, locals_, depth - 1), draw(dice, locals_, depth - 1)
            return nodes.Binary(dice.choice(list(BINARY)), left, right, types.promote(left.type, right.type))
        case _:
            # From integers: which integer a float becomes that is too large depends on the machine.
            inner = draw(dice, [one for one in locals_ if one.type != Type.F64], depth - 1)
            return nodes.Cast(inner, dice.choice(KINDS))


def compute(expr, known):
    match expr:
        case nodes.Local(name):
            return known[name]
        case nodes.Unary(operator, value):
            return UNARY[operator](compute(value, known))
        case nodes.Binary(operator, left, right, kind):
            return BINARY[operator](*(compute(one, known).astype(NUMPY[kind]) for one in (left, right)))
        case nodes.Cast(value, kind):
            return compute(value, known).astype(NUMPY[kind])


@pytest.mark.parametrize("seed", range(20))
def test_numbers_lie_in_their_range(seed):
    """Of types so narrow that many results wrap around."""
    dice, bounded = random.Random(seed), 0
    for _ in range(100):
        locals_ = [nodes.Local(name, kind) for name, kind in zip("abcd", KINDS, strict=True)]
        assumed, known = {}, {}
        for one in locals_:
            ends = [end for end in ENDS if one.type == Type.F64 or types.fits(end, one.type)]
            low, high = sorted(dice.choices(ends, k=2))
            assumed[one.name] = Range(low, high)
            known[one.name] = np.array([low, high, *dice.choices(range(low, high + 1), k=50)]).astype(NUMPY[one.type])
        expr = draw(dice, locals_, 3)
        low, high = Ranges({}, assumed).of(expr)
        numbers = compute(expr, known)
        assert low <= numbers.min() and numbers.max() <= high, expr
        bounded += high < np.inf
    assert bounded > 10


@pytest.mark.parametrize("operator", ["neg", "abs"])
def test_the_least_integer_has_no_opposite(operator):
    x = nodes.Local("x", Type.I32)
    assert Ranges({}, {"x": Range(-(2**31), -1)}).of(nodes.Unary(Operator(operator), x, Type.I32)) == Range()
    assert Ranges({}, {"x": Range(-(2**31) + 1, -1)}).of(nodes.Unary(Operator(operator), x, Type.I32)).low >= 0


@pytest.mark.parametrize("holds", [True, False])
def test_a_negative_number_beside_an_unsigned_one_is_a_large_one(holds):
    """`-1 >= n` is true for each unsigned `n`."""
    less = nodes.Binary(Operator.LT, nodes.Local("i", Type.I32), nodes.Local("n", Type.U32), Type.U1)
    ranges = Ranges({}, {"n": Range(5.0, 9.0)}).assuming(less, holds=holds)
    assert ranges.of(nodes.Local("i", Type.I32)) == Range()
