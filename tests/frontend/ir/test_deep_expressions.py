"""Deep expressions: what is printed of them nests little, and computes the same."""

from __future__ import annotations

import ast
import math

import pytest

from tinsmith.codegen import print_kernel
from tinsmith.ir import nodes, types

X, ONE = nodes.Local("x", "f64"), nodes.Const(1.0, "f64")


def binary(operator, left, right):
    return nodes.Binary(operator, left, right, "f64")


def to_the_left(levels):
    expr = X
    for number in range(levels):
        expr = binary("+*-"[number % 3], expr, nodes.Const(number % 5 / 4, "f64"))
    return expr


def to_the_right(levels):
    expr = X
    for number in range(levels):
        expr = binary("-+*"[number % 3], nodes.Const(number % 5 / 4, "f64"), expr)
    return expr


def of_functions(levels):
    expr = X
    for number in range(levels):
        expr = nodes.Unary(("sin", "cos")[number % 2], expr, "f64")
    return expr


def of_choices(levels):
    expr = X
    for number in range(levels):
        condition = nodes.Binary(">", expr, nodes.Const(0.3, "f64"), "u1")
        expr = nodes.Select(condition, binary("*", X, X), nodes.Const(number / levels, "f64"), "f64")
    return expr


def of_estimators(levels):
    """Nest values that only differentiation reads, which must be neither printed nor computed."""
    return binary("straight_through", to_the_left(levels), nodes.Unary("no such function", X, "f64"))


class Engine:
    """What printed text calls, in Python."""

    f64 = f32 = float
    sin, cos = math.sin, math.cos

    @staticmethod
    def select(condition, then, otherwise):
        return then if condition else otherwise


def values(body, x):
    """Run a printed kernel and return its locals."""
    names = {**dict.fromkeys(("x", "y", "total"), "f64"), "flag": "u1"}
    kernel = nodes.Kernel("k", "", {}, {}, names, tuple(body))
    tree = print_kernel(kernel, {}, types.Defaults())
    text = ast.unparse(tree)
    body = ast.parse(text).body[0].body
    results = {"_lang": Engine, "x": x, "total": 2.0}
    exec("\n".join(map(ast.unparse, body)), results)
    return results, text


def deepest(text):
    depth, most = 0, 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        most = max(most, depth)
    return most


def value_of(expr, x):
    match expr:
        case nodes.Const(value):
            return value
        case nodes.Local():
            return x
        case nodes.Unary(operator, part):
            return getattr(math, operator)(value_of(part, x))
        case nodes.Select(condition, then, otherwise):
            return value_of(then if value_of(condition, x) else otherwise, x)
        case nodes.Binary("straight_through", left):
            return value_of(left, x)
    left, right = value_of(expr.left, x), value_of(expr.right, x)
    return {"+": left + right, "-": left - right, "*": left * right, ">": left > right}[expr.operator]


SHAPES = [to_the_left, to_the_right, of_functions, of_choices, of_estimators]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("levels", [10, 100, 170])
def test_split_expressions_compute_the_same(shape, levels):
    expr = shape(levels)
    results, text = values([nodes.Assign("y", expr)], 0.7)
    assert results["y"] == pytest.approx(value_of(expr, 0.7), rel=1e-12)
    assert deepest(text) < 100
    assert ("part_1" in text) == (levels > 40)


def test_conditions_and_sums_keep_their_form():
    deep = to_the_right(100)
    choose = nodes.If(
        nodes.Binary("<", deep, nodes.Const(1e9, "f64"), "u1"), (nodes.Assign("y", ONE),), (nodes.Assign("y", deep),)
    )
    add = nodes.Assign("total", binary("+", nodes.Local("total", "f64"), deep))
    results, text = values([choose, add], 0.7)
    assert results["y"] == 1.0
    assert results["total"] == pytest.approx(2.0 + value_of(deep, 0.7))
    assert "\n    total = total + " in text
