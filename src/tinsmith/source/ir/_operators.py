"""Operators of Python's tree, by what the IR calls them."""

from __future__ import annotations

import ast

UNARY: dict[type[ast.unaryop], str] = {ast.USub: "neg", ast.Not: "not", ast.Invert: "~"}
BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "pow",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
"""The comparison that holds where another one does not."""
SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""The comparison of the same two values in the other order."""
ATOMIC = {"add": "+", "sub": "-", "mul": "*", "min": "min", "max": "max", "and": "&", "or": "|", "xor": "^"}
"""What an atomic makes of the old value and its operand."""
ATOMIC_AUGMENTED: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
"""Augmented assignments that are atomic in memory; their operand becomes the target's type first."""
