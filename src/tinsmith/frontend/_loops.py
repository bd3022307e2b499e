"""Classify loops: unrolled, parallel or serial, with which bounds. List statements with the loops around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from .._lazy import lazy
from ..engines import walk
from ._definitions import Loop, assignments
from ._nodes import resolve_callee, sub_expressions


def is_static(loop: ast.AST) -> TypeGuard[ast.For]:
    """Return True for a loop over `ti.static(...)`, which is unrolled."""
    return isinstance(loop, ast.For) and resolve_callee(loop.iter) == "static"


def get_iterable(loop: ast.For) -> ast.expr:
    """Return what a loop runs over, without the `ti.static(...)` around it."""
    match loop.iter:
        case ast.Call(args=[iterable, *_]) if resolve_callee(loop.iter) == "static":
            return iterable
    return loop.iter


def range_bounds(counted: ast.AST) -> list[list[ast.expr]]:
    """Return the arguments, `[end]` or `[begin, end]`, for each variable of a `range` or `ndrange`; [] for others."""
    match resolve_callee(counted), counted:
        case "range", ast.Call(args=[_, *_] as ends):
            return [ends]
        case "ndrange", ast.Call(args=parts):
            return [part.elts if isinstance(part, ast.Tuple) and part.elts else [part] for part in parts]
    return []


def dynamic(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """Return the loops that run when the kernel runs: those that `ti.static` does not unroll at compile time."""
    return tuple(loop for loop in loops if not is_static(loop))


def is_setting(statement: ast.stmt) -> bool:
    """Return True if a statement sets options of the loop that follows (`ti.loop_config(...)`)."""
    return isinstance(statement, ast.Expr) and resolve_callee(statement.value) in ("loop_config", "block_local")


def is_serialized(statement: ast.stmt) -> bool:
    """Return True if a statement makes the loop that follows run in order (`ti.loop_config(serialize=True)`)."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    if resolve_callee(statement.value) != "loop_config":
        return False
    given = {keyword.arg: keyword.value for keyword in statement.value.keywords}
    threads = given.get("parallelize")
    # One thread runs a loop in order.
    if isinstance(threads, ast.Constant) and threads.value == 1:
        return True
    # A value that is not a constant counts as true: a batch whose samples run in order is right either way.
    serialize = given.get("serialize")
    return serialize is not None and not (isinstance(serialize, ast.Constant) and not serialize.value)


def tasks(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.For, bool]]:
    """Yield the outermost loops of a kernel, which engines run in parallel, and whether a setting makes each serial."""
    is_serial = False
    for one in body:
        if is_static(one):
            # It is unrolled, so the loops in it become outermost ones.
            yield from tasks(one.body)
        elif isinstance(one, ast.For):
            yield one, is_serial
        # A setting holds until the next loop.
        is_serial = not isinstance(one, ast.For) and (is_serial or is_serialized(one))


def constant_extent(loop: Loop) -> tuple[int, int] | None:
    """Return the first and last value of a loop variable if the bounds are literals. An empty loop has last < first."""
    bounds = range_bounds(get_iterable(loop)) if isinstance(loop, ast.For) else []
    ends = bounds[0] if len(bounds) == 1 else []
    values = [one.value for one in ends if isinstance(one, ast.Constant) and isinstance(one.value, int)]
    if not 0 < len(values) == len(ends) < 3:
        return None
    numbers = range(*values)
    return numbers.start, numbers.stop - 1


def runs_once(loop: Loop) -> bool:
    """Return True for loops written to run once: `for _ in range(1)`, `for _ in ti.ndrange(1)`."""
    extent = constant_extent(loop)
    return extent is not None and extent[0] == extent[1]


@dataclass(frozen=True)
class Spot:
    """A statement, and the loops and conditions around it, the outermost first."""

    statement: ast.stmt
    loops: tuple[Loop, ...]
    guards: tuple[ast.expr, ...]

    @property
    def inner(self) -> tuple[Loop, ...]:
        """The loops inside the outermost one, without those that `ti.static` unrolls."""
        return dynamic(self.loops)[1:]

    @lazy
    def expressions(self) -> tuple[ast.expr, ...]:
        """Return all expressions that the statement itself evaluates: the test of an `if`, not its body."""
        return tuple(
            node for part in sub_expressions(self.statement) for node in walk(part) if isinstance(node, ast.expr)
        )

    @lazy
    def calls(self) -> tuple[ast.Call, ...]:
        """Return the calls among `expressions`."""
        return tuple(node for node in self.expressions if isinstance(node, ast.Call))

    @lazy
    def assignments(self) -> tuple[tuple[ast.expr, ast.expr], ...]:
        """Return the (target, value) of each assignment by the statement."""
        return tuple(assignments(self.statement))


def spots(body: Sequence[ast.stmt], loops: tuple[Loop, ...] = (), guards: tuple[ast.expr, ...] = ()) -> Iterator[Spot]:
    """Yield all statements in the order of the text, each with the loops and conditions around it."""
    for one in body:
        yield Spot(one, loops, guards)
        if isinstance(one, ast.For | ast.While):
            yield from spots(one.body + one.orelse, (*loops, one), guards)
        elif isinstance(one, ast.If):
            # The kernel is compiled with one of the branches: the run tests nothing.
            inside = guards if resolve_callee(one.test) == "static" else (*guards, one.test)
            yield from spots(one.body, loops, inside)
            yield from spots(one.orelse, loops, inside)
