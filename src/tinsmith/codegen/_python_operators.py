"""Operators of Python's tree, by what the IR calls them."""

from __future__ import annotations

import ast

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
