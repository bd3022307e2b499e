"""Tables of operators, such as `+`: the names of the engines' functions for them, and Python's functions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

UNARY_FUNCTIONS = {
    **{name: name for name in ("sin", "cos", "tan", "asin", "acos", "tanh", "sqrt", "rsqrt", "exp", "log", "abs")},
    **{name: name for name in ("neg", "popcnt", "clz", "ffs")},
    "logical_not": "not",
    "bit_not": "~",
}
"""The unary operators, by the names of their functions in the engines' `lang.ops`."""
BINARY_FUNCTIONS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "pow",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "bit_shl": "<<",
    "bit_sar": ">>",
    "bit_shr": ">>>",
    "cmp_lt": "<",
    "cmp_le": "<=",
    "cmp_gt": ">",
    "cmp_ge": ">=",
    "cmp_eq": "==",
    "cmp_ne": "!=",
    "max_impl": "max",
    "min_impl": "min",
    "atan2": "atan2",
    "raw_div": "raw_div",
    "raw_mod": "raw_mod",
}
"""The binary operators, by the names of their functions in the engines' `lang.ops`."""
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PYTHON_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "pow": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    **COMPARISONS,
}
"""What Python computes from two values for an operator between them."""
