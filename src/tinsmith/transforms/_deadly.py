"""Operations on which the engines end the process, with the types that they have in a kernel.

Each was found with Taichi 1.7.4 and Quadrants 1.3.3 on a CPU, by compiling it in a process of its own: LLVM's
assertions and "Not supported" abort, a division of integers by zero raises SIGFPE, and a power whose exponent is a
bool never ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..source.ir import DIVISION_BY_ZERO, nodes, types, walk
from ._products import is_alone_in
from .analysis import definitions, single_definitions

_BYTES = frozenset({"u1", "i8", "u8"})
_NARROW = frozenset({"i8", "i16"})
_DIVISIONS = frozenset({"//", "%", "raw_div", "raw_mod"})


class DeadlyOperation(NamedTuple):
    """An operation: in words, its line, and what to write instead, a sentence without its full stop."""

    words: str
    line: int
    remedy: str


def find_deadly(kernel: nodes.Kernel) -> DeadlyOperation | None:
    """Return the first operation on which the engines end the process when they compile the kernel or run it."""
    values = single_definitions(definitions(kernel.body))
    for task in kernel.body:
        for one in walk.statements([task]):
            for words, remedy in _of_statement(kernel, task, one, values):
                return DeadlyOperation(words, one.line, remedy)
    return None


def _of_statement(
    kernel: nodes.Kernel, task: nodes.Stmt, one: nodes.Stmt, values: Mapping[str, nodes.Expr]
) -> Iterator[tuple[str, str]]:
    for part in walk.parts(*walk.expressions(one)):
        yield from _of_expression(part, values)
    match one:
        case nodes.Assign():
            yield from _to_bool(one.value, kernel.locals[one.name])
        case nodes.Store():
            yield from _to_bool(one.value, kernel.arrays[one.array].type)
        case nodes.Atomic() if one.array in kernel.arrays:
            kind = kernel.arrays[one.array].type
            yield from _to_bool(one.value, kind)
            if types.is_float(kind) and one.operator in ("and", "or", "xor"):
                yield f"an atomic `{one.operator}` on {kind}", "Use an array of integers"
            elif kind == "u1" and not is_alone_in(task, one):
                yield f"an atomic `{one.operator}` on bools", "Use an array of i32"
            elif kind in _BYTES and one.operator in ("min", "max"):
                yield f"an atomic `{one.operator}` on {kind}", "Use an array of i32"


def _to_bool(value: nodes.Expr, kind: str) -> Iterator[tuple[str, str]]:
    if kind == "u1" and types.is_float(value.type):
        yield "a bool that is given a float", "Compare it, `x != 0.0`, or begin with a float: `s = float(x)`"


def _of_expression(one: nodes.Expr, values: Mapping[str, nodes.Expr]) -> Iterator[tuple[str, str]]:
    match one:
        case nodes.Cast(value, kind, keeps_bits):
            if not keeps_bits:
                yield from _to_bool(value, kind)
        case nodes.Unary("abs", value) if value.type in _NARROW:
            yield f"`abs` of {value.type}", "Convert it to i32 first"
        case nodes.Unary("rsqrt", value) if not types.is_float(value.type):
            yield f"`rsqrt` of {value.type}", "Convert it to a float first"
        case nodes.Binary("min" | "max" as operator, _, _, kind) if kind in _BYTES:
            yield f"`{operator}` of {kind}", "Convert the operands to i32 first"
        case nodes.Binary("pow", left, right) if right.type in {*_NARROW, "u1"} and not isinstance(right, nodes.Const):
            yield f"a power of {left.type} whose exponent is {right.type}", "Convert the exponent to i32 first"
        case nodes.Binary("raw_mod", _, _, kind) if types.is_float(kind):
            yield f"`raw_mod` of {kind}", "Use `%`"
        case nodes.Binary(operator, _, right, kind) if operator in _DIVISIONS and not types.is_float(kind):
            if _find_number(right, values) == 0:
                yield DIVISION_BY_ZERO


def _find_number(one: nodes.Expr, values: Mapping[str, nodes.Expr]) -> object:
    """The number that an expression is known to be; None if it is not known."""
    seen: set[str] = set()
    while not isinstance(one, nodes.Const):
        if isinstance(one, nodes.Cast) and not one.keeps_bits:
            one = one.value
        elif isinstance(one, nodes.Local) and one.name in values and one.name not in seen:
            seen.add(one.name)
            one = values[one.name]
        else:
            return None
    return one.value
