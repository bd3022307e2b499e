"""Find operations on which the engines end the process, by the types that they have in a kernel.

Each was found with Taichi 1.7.4 and Quadrants 1.3.3 on a CPU, by compiling it in a process of its own: LLVM's
assertions and "Not supported" abort, a division of integers by zero raises SIGFPE, and a power whose exponent is a
bool never ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .. import analyses, passes
from ..ir import DIVISION_BY_ZERO, AtomicOperator, Operator, Type, nodes, operators, types, walk

_BYTES = frozenset({Type.U1, Type.I8, Type.U8})
_NARROW = frozenset({Type.I8, Type.I16})


class DeadlyOperation(NamedTuple):
    """An operation: in words, its line, and what to write instead, a sentence without its full stop."""

    words: str
    line: int
    remedy: str


def find_deadly(kernel: nodes.Kernel) -> DeadlyOperation | None:
    """Return the first operation on which the engines end the process when they compile the kernel or run it."""
    known: dict[str, analyses.Numbers] = {}
    for task in kernel.body:
        for one in _follow([task], known):
            for words, remedy in _of_statement(kernel, task, one, known):
                return DeadlyOperation(words, one.line, remedy)
    return None


def _follow(body: Sequence[nodes.Stmt], known: dict[str, analyses.Numbers]) -> Iterator[nodes.Stmt]:
    """Yield each statement while `known` holds the locals whose number is certain where it begins."""
    for one in body:
        # A loop's body may run again after it changed a local, so none of those is known when it begins.
        inside = {
            name for block in walk.bodies(one) for inner in walk.statements(block) for name in _find_changed(inner)
        }
        if not isinstance(one, nodes.If):
            _forget(inside, known)
        yield one
        # Each side of a branch starts from the same numbers; what either changes is unknown behind both.
        around = dict(known)
        for block in walk.bodies(one):
            yield from _follow(block, known)
            known.clear()
            known.update(around)
        name, value = _find_assignment(one, known)
        result = None if value is None else _evaluate(value, known)
        _forget(inside | _find_changed(one), known)
        if result is not None and result.is_defined.all():
            known[name] = result.numbers


def _find_assignment(one: nodes.Stmt, known: Mapping[str, analyses.Numbers]) -> tuple[str, nodes.Expr | None]:
    """Return the local that a statement gives a value, and the value; None for other statements."""
    match one:
        case nodes.Assign(name, value):
            return name, value
        case nodes.Atomic(operator=AtomicOperator.ADD | AtomicOperator.SUB as operator, array=name, value=value) if (
            name in known
        ):
            return name, nodes.Binary(operators.ATOMIC[operator], nodes.Local(name, value.type), value, value.type)
    return "", None


def _find_changed(one: nodes.Stmt) -> set[str]:
    """Return the locals that a statement changes; an atomic may be one on a local."""
    return {*walk.find_assigned(one), *([one.array] if isinstance(one, nodes.Atomic) else [])}


def _evaluate(expr: nodes.Expr, known: Mapping[str, analyses.Numbers]) -> analyses.Result | None:
    return analyses.evaluate(expr, lambda leaf: known.get(leaf.name) if isinstance(leaf, nodes.Local) else None)


def _forget(names: Iterable[str], known: dict[str, analyses.Numbers]) -> None:
    for name in names:
        known.pop(name, None)


def _of_statement(
    kernel: nodes.Kernel, task: nodes.Stmt, one: nodes.Stmt, known: Mapping[str, analyses.Numbers]
) -> Iterator[tuple[str, str]]:
    for part in walk.parts(*walk.expressions(one)):
        yield from _of_expression(part, known)
    match one:
        case nodes.Assign():
            yield from _to_bool(one.value, kernel.locals[one.name])
        case nodes.Store():
            yield from _to_bool(one.value, kernel.arrays[one.array].type)
        case nodes.Atomic() if one.array in kernel.arrays:
            kind = kernel.arrays[one.array].type
            yield from _to_bool(one.value, kind)
            if types.is_float(kind) and one.operator in (AtomicOperator.AND, AtomicOperator.OR, AtomicOperator.XOR):
                yield f"an atomic `{one.operator}` on {kind}", "Use an array of integers"
            # On an element of the iteration's own, engines make an ordinary operation of an atomic, which compiles.
            elif kind == Type.U1 and not passes.is_alone_in(task, one):
                yield f"an atomic `{one.operator}` on bools", "Use an array of i32"
            elif kind in _BYTES and one.operator in ("min", "max"):
                yield f"an atomic `{one.operator}` on {kind}", "Use an array of i32"


def _to_bool(value: nodes.Expr, kind: Type) -> Iterator[tuple[str, str]]:
    if kind == Type.U1 and types.is_float(value.type):
        yield (
            "an assignment of a float to a bool",
            "Compare the float, `x != 0.0`, or make the variable a float: `s = float(x)`",
        )


def _of_expression(one: nodes.Expr, known: Mapping[str, analyses.Numbers]) -> Iterator[tuple[str, str]]:
    match one:
        case nodes.Cast(value, kind, keeps_bits):
            if not keeps_bits:
                yield from _to_bool(value, kind)
        case nodes.Unary(Operator.ABS, value) if value.type in _NARROW:
            yield f"`abs` of {value.type}", "Convert the operand to i32 first"
        case nodes.Unary(Operator.RSQRT, value) if not types.is_float(value.type):
            yield f"`rsqrt` of {value.type}", "Convert the operand to a float first"
        case nodes.Binary(Operator.MIN | Operator.MAX as operator, _, _, kind) if kind in _BYTES:
            yield f"`{operator}` of {kind}", "Convert the operands to i32 first"
        case nodes.Binary(Operator.POW, left, right) if right.type in {*_NARROW, Type.U1} and not isinstance(
            right, nodes.Const
        ):
            yield f"a power of {left.type} whose exponent is {right.type}", "Convert the exponent to i32 first"
        case nodes.Binary(Operator.RAW_MOD, _, _, kind) if types.is_float(kind):
            yield f"`raw_mod` of {kind}", "Use `%`"
        case nodes.Binary(operator, _, right, kind) if operator in operators.DIVISIONS and not types.is_float(kind):
            # Only a divisor that is certainly 0 in every run is refused; `check_bounds=True` finds those of one run.
            divisor = _evaluate(right, known)
            if divisor is not None and not divisor.numbers.any():
                yield DIVISION_BY_ZERO
