"""What strips of loops are written with: their length, the functions that move, names and small statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir import Names, Operator, Type, compare, integer, minus, nodes, number, operators, opposite, plus, types, walk

LENGTH = 64
"""Iterations of a strip."""
SHIFT = 6
"""The power of two that `LENGTH` is."""
SHORTEST = 8
"""A loop of fewer iterations stays whole: strips of it take longer (docs/about/decisions/vector-speed.md)."""
FUNCTIONS = {name: f"arithmetic_{name}" for name in operators.ARITHMETIC_FUNCTIONS}
"""The functions that have a version in plain arithmetic, and the names of these versions."""
POWER = "arithmetic_pow"
"""The version of "pow" in plain arithmetic, used in lanes only: strips compute functions of one number."""
LIMITS = {"arithmetic_cos": 1048576.0, "arithmetic_sin": 1048576.0}
"""Bounds of the absolute values that some of these versions accept; NaN is not accepted."""
KINDS = frozenset({Type.F32, Type.F64, Type.I32})
"""Types of the arrays that are vectorized: for other types no gain was measured."""
_UNARY = frozenset({"neg", "not", "~", "sqrt", "abs", "floor", "ceil"})
"""Unary operations for which processors have vector instructions."""
_BINARY = frozenset(
    {POWER, "+", "-", "*", "min", "max", "&", "|", "^", "<<", ">>", "and", "or", "==", "!=", "<", "<=", ">", ">="}
)
_LIBRARY = {arithmetic: name for name, arithmetic in FUNCTIONS.items()}


def moves(one: nodes.Unary) -> bool:
    """Return True if a function has a version in plain arithmetic: some functions of float32 have one."""
    return one.operator in FUNCTIONS and one.type == Type.F32 and one.value.type == Type.F32


def by_arithmetic(one: nodes.Expr) -> nodes.Expr:
    """Replace the call of a function, such as `exp`, by its version in plain arithmetic, which can be vectorized.

    Return any other expression unchanged.
    """
    return replace(one, operator=FUNCTIONS[one.operator]) if isinstance(one, nodes.Unary) and moves(one) else one


def with_powers(one: nodes.Stmt) -> nodes.Stmt:
    """Replace each power of two float32 numbers in a statement by its version in plain arithmetic."""

    def change(expr: nodes.Expr) -> nodes.Expr:
        rebuilt = walk.rebuild(expr, change)
        if not isinstance(rebuilt, nodes.Binary) or rebuilt.operator != Operator.POW:
            return rebuilt
        is_single = rebuilt.type == rebuilt.left.type == rebuilt.right.type == Type.F32
        return replace(rebuilt, operator=POWER) if is_single else rebuilt

    return walk.transform(one, change)


def is_vector(one: nodes.Expr) -> bool:
    """Return True if processors have a vector (SIMD) instruction for the outermost operation of an expression.

    They have none for the division of integers, nor for most functions.
    """
    match one:
        case nodes.Unary():
            return one.operator in _UNARY or moves(one)
        case nodes.Binary(Operator.DIV):
            return one.type in (Type.F32, Type.F64)
        case nodes.Binary():
            return one.operator in _BINARY
        case nodes.Cast() if not one.keeps_bits and types.promote(one.type, one.value.type) != one.type:
            # It may be the source's own, or the engine's, which warns that digits are lost where it sees the source.
            return False
        case nodes.Load() | nodes.Cast() | nodes.Local():
            return one.type in KINDS or one.type == Type.U1
        case _:
            return True


def strips_between(begin: nodes.Expr, end: nodes.Expr) -> nodes.Expr:
    """Return the number of strips from one index to before another."""
    return integer(Operator.SHIFT_RIGHT, integer(Operator.ADD, minus(end, begin), number(LENGTH - 1)), number(SHIFT))


def bounds_of_strip(
    strip: nodes.Expr, begin: nodes.Expr, end: nodes.Expr, first: nodes.Local, size: nodes.Local
) -> tuple[nodes.Stmt, nodes.Stmt]:
    """Return statements that compute the first index of a strip and its number of iterations."""
    return (
        assign(first, plus(begin, integer(Operator.SHIFT_LEFT, strip, number(SHIFT)))),
        assign(size, integer(Operator.MIN, number(LENGTH), integer(Operator.SUB, end, first))),
    )


def at_line(body: Sequence[nodes.Stmt], line: int) -> nodes.Block:
    """Return statements with this line for those that have none, since tinsmith added them."""
    return walk.rewrite(body, lambda one: (one if one.line else replace(one, line=line),))


def assign(local: nodes.Expr, value: nodes.Expr) -> nodes.Assign:
    """Return the assignment of a value to a local."""
    assert isinstance(local, nodes.Local)
    return nodes.Assign(local.name, value)


def within_limits(lanes: nodes.For, names: Names) -> list[nodes.Stmt]:
    """Return a loop of functions, and the loop once more by the library, for when a number was beyond a limit.

    It stores to memory that nobody has read yet. A sum of tests lets it run in vectors, which a branch would not.
    """
    far = names.local("is_far", Type.I32)
    body: list[nodes.Stmt] = []
    for one in lanes.body:
        parts = walk.parts(*walk.expressions(one))
        for part in dict.fromkeys(part for part in parts if isinstance(part, nodes.Unary) and part.operator in LIMITS):
            # As "not less", which is true of NaN too.
            limit = nodes.Const(LIMITS[part.operator], Type.F32)
            is_near = compare(Operator.LT, nodes.Unary(Operator.ABS, part.value, Type.F32), limit)
            test = nodes.Cast(opposite(is_near), Type.I32)
            body.append(assign(far, integer(Operator.BIT_OR, far, test)))
        # After the tests: it may give a local that they read another value.
        body.append(one)
    if len(body) == len(lanes.body):
        return [lanes]
    library = walk.transform(lanes, _by_library)
    again = nodes.If(compare(Operator.NE, far, number(0)), (library,))
    return [assign(far, number(0)), replace(lanes, body=tuple(body)), again]


def _by_library(expr: nodes.Expr) -> nodes.Expr:
    if isinstance(expr, nodes.Unary) and expr.operator in _LIBRARY:
        return replace(expr, operator=_LIBRARY[expr.operator], value=_by_library(expr.value))
    return walk.rebuild(expr, _by_library)


def run_lanes(index: nodes.Local, begin: nodes.Expr, end: nodes.Expr, body: Sequence[nodes.Stmt]) -> nodes.For:
    """Build a loop whose index goes from one number to another."""
    return nodes.For((index.name,), ((begin, end),), tuple(body))


def run_rolled(
    index: nodes.Local, begin: nodes.Expr, count: nodes.Expr, body: Sequence[nodes.Stmt], names: Names
) -> list[nodes.Stmt]:
    """Return a loop of `count` iterations that compilers do not unroll, because they cannot compute its trip count.

    LLVM unrolls a loop that it cannot vectorize eight times for CPUs with a large buffer of decoded instructions (AMD's
    since Zen 3; LLVM 15 and 22), and takes most of its time for those copies. So a loop that seldom runs is counted by
    a float (docs/about/decisions/vector-speed.md).
    """
    left = names.local("left", Type.F64)
    step = nodes.Binary(Operator.SUB, left, nodes.Const(1.0, Type.F64), Type.F64)
    is_over = compare(Operator.LT, left, nodes.Const(0.5, Type.F64))
    counts = [assign(left, step), assign(index, integer(Operator.ADD, index, number(1)))]
    loop = nodes.While((nodes.If(is_over, (nodes.Break(),)), *body, *counts))
    return [assign(index, begin), assign(left, nodes.Cast(count, Type.F64)), loop]
