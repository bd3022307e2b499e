"""Operators of the IR, and what is known of each."""

from __future__ import annotations

COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
SHIFTS = frozenset({"<<", ">>", ">>>"})
BITWISE = frozenset({"&", "|", "^"}) | SHIFTS
LOGICAL = frozenset({"and", "or"})
"""Of two truths, of which both are computed."""
SYMBOLS = COMPARISONS | BITWISE | LOGICAL | {"+", "-", "*", "/", "//", "%"}
"""Those that are written between their operands."""

ARITHMETIC_FUNCTIONS = ("cos", "exp", "log", "sin", "tanh")
"""Functions that `kernels` has by arithmetic alone, as `arithmetic_cos` and so on."""

UNARY = frozenset(
    {
        "neg",
        "not",
        "~",
        "abs",
        "sgn",
        "norm",
        "sqrt",
        "rsqrt",
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "tanh",
    }
    | {"floor", "ceil", "round", "popcnt", "clz", "ffs"}
    | {f"arithmetic_{name}" for name in ARITHMETIC_FUNCTIONS}
)
"""Operations on one number."""
BINARY = SYMBOLS | {"pow", "min", "max", "atan2", "raw_div", "raw_mod", "straight_through", "arithmetic_pow"}
"""Operations on two numbers."""

REAL_ONLY = frozenset({"sin", "cos", "tan", "asin", "acos", "tanh", "floor", "ceil", "round"})
WIDENING = frozenset({"sqrt", "exp", "log"})
"""Functions that make an integer a float of the default width."""
INTEGERS_ONLY = BITWISE | LOGICAL | {"not", "~", "popcnt", "clz", "ffs"}

OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
"""The comparison that holds where another one does not."""
SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""The comparison of the same two values in the other order."""
ATOMIC = {"add": "+", "sub": "-", "mul": "*", "min": "min", "max": "max", "and": "&", "or": "|", "xor": "^"}
"""What an atomic makes of the old value and its operand."""
