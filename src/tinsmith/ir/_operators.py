"""Operators of the IR, and the sets and tables that say what each is."""

from __future__ import annotations

from enum import Enum


class TextEnum(str, Enum):
    """An enum whose members are texts. Passes look them up a million times: they are compared and hashed in C."""

    __hash__ = str.__hash__
    __str__ = str.__str__
    __format__ = str.__format__
    __repr__ = str.__repr__


class Operator(TextEnum):
    """An operation on one number or two. As text it is the sign or the name that the printed IR has."""

    # On one.
    NEG = "neg"
    NOT = "not"
    INVERT = "~"
    ABS = "abs"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    EXP = "exp"
    LOG = "log"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    TANH = "tanh"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    POPCNT = "popcnt"
    CLZ = "clz"
    FFS = "ffs"
    # The root of a sum of squares: a root whose derivative at 0 is 0.
    NORM = "norm"
    # The same functions by arithmetic alone, which `kernels` has and no engine.
    ARITHMETIC_COS = "arithmetic_cos"
    ARITHMETIC_EXP = "arithmetic_exp"
    ARITHMETIC_LOG = "arithmetic_log"
    ARITHMETIC_SIN = "arithmetic_sin"
    ARITHMETIC_TANH = "arithmetic_tanh"

    # On two.
    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    FLOOR_DIV = "//"
    MOD = "%"
    POW = "pow"
    MIN = "min"
    MAX = "max"
    ATAN2 = "atan2"
    # Division of integers towards zero, and its rest.
    RAW_DIV = "raw_div"
    RAW_MOD = "raw_mod"
    BIT_AND = "&"
    BIT_OR = "|"
    BIT_XOR = "^"
    SHIFT_LEFT = "<<"
    SHIFT_RIGHT = ">>"
    # Fills with zeros.
    SHIFT_RIGHT_UNSIGNED = ">>>"
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    # Of two truths; both are computed.
    AND = "and"
    OR = "or"
    # The value of the left one with the derivative of the right one.
    STRAIGHT_THROUGH = "straight_through"
    ARITHMETIC_POW = "arithmetic_pow"


COMPARISONS = frozenset({Operator.EQ, Operator.NE, Operator.LT, Operator.LE, Operator.GT, Operator.GE})
SHIFTS = frozenset({Operator.SHIFT_LEFT, Operator.SHIFT_RIGHT, Operator.SHIFT_RIGHT_UNSIGNED})
BITWISE = SHIFTS | {Operator.BIT_AND, Operator.BIT_OR, Operator.BIT_XOR}
LOGICAL = frozenset({Operator.AND, Operator.OR})
SYMBOLS = frozenset(one for one in Operator if not one.value.isidentifier() and one is not Operator.INVERT) | LOGICAL
"""The operators that are written between their operands, such as `+` and `and`."""

ARITHMETIC_FUNCTIONS = ("cos", "exp", "log", "sin", "tanh")
"""Functions that `kernels` has by arithmetic alone, as `arithmetic_cos` and so on."""

BINARY = SYMBOLS | {
    Operator.POW,
    Operator.MIN,
    Operator.MAX,
    Operator.ATAN2,
    Operator.RAW_DIV,
    Operator.RAW_MOD,
    Operator.STRAIGHT_THROUGH,
    Operator.ARITHMETIC_POW,
}
"""Operations on two numbers."""
UNARY = frozenset(Operator) - BINARY
"""Operations on one number."""

REAL_ONLY = frozenset(map(Operator, ("sin", "cos", "tan", "asin", "acos", "tanh", "floor", "ceil", "round")))
WIDENING = frozenset({Operator.SQRT, Operator.EXP, Operator.LOG})
"""Functions that make an integer a float of the default width."""
INTEGERS_ONLY = BITWISE | LOGICAL | set(map(Operator, ("not", "~", "popcnt", "clz", "ffs")))

DIVISIONS = frozenset({Operator.FLOOR_DIV, Operator.MOD, Operator.RAW_DIV, Operator.RAW_MOD})
"""Divisions that end the process on integers, by zero or of the least integer by -1."""

OPPOSITE = {
    Operator.LT: Operator.GE,
    Operator.LE: Operator.GT,
    Operator.GT: Operator.LE,
    Operator.GE: Operator.LT,
    Operator.EQ: Operator.NE,
    Operator.NE: Operator.EQ,
}
"""The negation of each comparison: `a >= b` holds exactly where `a < b` does not, except for NaN."""
SWAPPED = {
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
    Operator.EQ: Operator.EQ,
    Operator.NE: Operator.NE,
}
"""The mirror of each comparison: `a < b` is `b > a`."""


class AtomicOperator(TextEnum):
    """What an atomic does to an element."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"
    XOR = "xor"


ATOMIC = {
    AtomicOperator.ADD: Operator.ADD,
    AtomicOperator.SUB: Operator.SUB,
    AtomicOperator.MUL: Operator.MUL,
    AtomicOperator.MIN: Operator.MIN,
    AtomicOperator.MAX: Operator.MAX,
    AtomicOperator.AND: Operator.BIT_AND,
    AtomicOperator.OR: Operator.BIT_OR,
    AtomicOperator.XOR: Operator.BIT_XOR,
}
"""What an atomic makes of the old value and its operand."""


class VoteOperator(TextEnum):
    """What a vote says of the iterations of a block."""

    ALL = "all"
    ANY = "any"
    COUNT = "count"
