"""Nodes of Python's syntax tree for printed kernels, and what the IR calls Python's operators."""

from __future__ import annotations

import ast
import math

from ..engines import complete_places
from ..ir import AtomicOperator, Operator

UNARY: dict[type[ast.unaryop], Operator] = {ast.USub: Operator.NEG, ast.Not: Operator.NOT, ast.Invert: Operator.INVERT}
BINARY: dict[type[ast.operator], Operator] = {
    ast.Add: Operator.ADD,
    ast.Sub: Operator.SUB,
    ast.Mult: Operator.MUL,
    ast.Div: Operator.DIV,
    ast.FloorDiv: Operator.FLOOR_DIV,
    ast.Mod: Operator.MOD,
    ast.Pow: Operator.POW,
    ast.LShift: Operator.SHIFT_LEFT,
    ast.RShift: Operator.SHIFT_RIGHT,
    ast.BitAnd: Operator.BIT_AND,
    ast.BitOr: Operator.BIT_OR,
    ast.BitXor: Operator.BIT_XOR,
}
COMPARE: dict[type[ast.cmpop], Operator] = {
    ast.Eq: Operator.EQ,
    ast.NotEq: Operator.NE,
    ast.Lt: Operator.LT,
    ast.LtE: Operator.LE,
    ast.Gt: Operator.GT,
    ast.GtE: Operator.GE,
}
ATOMIC_AUGMENTED: dict[type[ast.operator], AtomicOperator] = {
    ast.Add: AtomicOperator.ADD,
    ast.Sub: AtomicOperator.SUB,
    ast.BitAnd: AtomicOperator.AND,
    ast.BitOr: AtomicOperator.OR,
    ast.BitXor: AtomicOperator.XOR,
}
"""Augmented assignments that are atomic in memory; their operand becomes the target's type first."""

SIGNS: dict[Operator, ast.operator | ast.cmpop | ast.unaryop] = {
    **{name: kind() for table in (BINARY, COMPARE, UNARY) for kind, name in table.items()},
    # Bit by bit: Taichi now and then cannot compile `a and (b or c)`, and both sides are computed anyway.
    Operator.AND: ast.BitAnd(),
    Operator.OR: ast.BitOr(),
}
_FUNCTIONS = {
    Operator.SHIFT_RIGHT_UNSIGNED: "bit_shr",
    Operator.POPCNT: "math.popcnt",
    Operator.CLZ: "math.clz",
    Operator.FFS: "math.ffs",
    Operator.NORM: "sqrt",
}
"""The engines' names for operations that the IR names differently."""


def operation(operator: Operator, left: ast.expr, right: ast.expr) -> ast.expr:
    """Return an operation on two values, by its operator in the IR."""
    match SIGNS.get(operator):
        case ast.operator() as sign:
            return ast.BinOp(left, sign, right)
        case ast.cmpop() as sign:
            return ast.Compare(left, [sign], [right])
        case _:
            return call_operation(operator, left, right)


def call_operation(operator: Operator, *operands: ast.expr) -> ast.Call:
    """Return a call of the engine's function for an operation."""
    return call(_FUNCTIONS.get(operator, str(operator)), *operands)


def lang(name: str) -> ast.expr:
    """Return a name in the engine's module, with its dots."""
    made: ast.expr = variable("_lang")
    for part in name.split("."):
        made = ast.Attribute(made, part, ast.Load())
    return made


def number(value: bool | float) -> ast.expr:
    """Return a number as Python's parser would: a negative one is the negation of a positive one."""
    # `copysign` also finds the sign of -0.0.
    if isinstance(value, bool) or math.copysign(1.0, value) > 0:
        return ast.Constant(value)
    return ast.UnaryOp(ast.USub(), ast.Constant(-value))


def call(name: str, *arguments: ast.expr) -> ast.Call:
    """Return a call of an engine's function."""
    return ast.Call(lang(name), list(arguments), [])


def variable(name: str) -> ast.Name:
    """Build the syntax tree of an expression that reads a variable."""
    return ast.Name(name, ast.Load())


def assign(target: ast.expr | str, value: ast.expr) -> ast.Assign:
    """Return an assignment to a name or to another target."""
    return ast.Assign([ast.Name(target, ast.Store()) if isinstance(target, str) else target], value, lineno=0)


def join_index(parts: list[ast.expr]) -> ast.expr:
    """Return the index that some parts are: a tuple of several, one by itself, and None for none."""
    return ast.Tuple(parts, ast.Load()) if len(parts) > 1 else parts[0] if parts else ast.Constant(None)


def define(name: str, parameters: list[ast.arg], body: list[ast.stmt]) -> ast.FunctionDef:
    """Return the definition of a function, whose nodes all have a place in the text."""
    tree = ast.FunctionDef(name, ast.arguments([], parameters, None, [], [], None, []), body, [], None)
    complete_places(tree)
    return tree
