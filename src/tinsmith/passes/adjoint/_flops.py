"""What a kernel does, counted, as far as its text and the sizes of a call tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import passes
from ...analyses import concurrent_loop, shared_atomics
from ...ir import AtomicOperator, Type, constant, nodes, plus, times, types, walk
from .._evaluate import evaluate, extent

_FUNCTIONS = {"exp", "log", "sin", "cos", "tan", "tanh", "asin", "acos", "pow", "atan2"}
_FUNCTION, _ATOMIC, _DRAW, _DECOMPOSITION = 10, 4, 10, 50
"""Operations that a function counts as, an atomic, a random number, and a decomposition of a matrix."""
SHARED_ATOMIC = 20
"""Operations by which an atomic that threads share is dearer than a load and a store of one thread. Measured: 4 to 6
nanoseconds on both engines, where an operation takes 0.1 to 0.25 (docs/about/decisions/threads.md)."""
_UNKNOWN_TRIPS = 16
"""How often a loop of unknown length is taken to run, where what is in it is weighed against what is around it."""
_BYTES = {kind: max(int(kind[1:]) // 8, 1) for kind in types.ALL}
"""The bytes of a number of each type: its name ends with its bits."""
IsKnown = Callable[[nodes.Expr], bool]
"""Whether sizes and arguments are known that a formula asks for."""


def count_flops(kernel: nodes.Kernel, shapes: Mapping[str, Sequence[int]], arguments: Mapping[str, Any]) -> int:
    """Count the sums, products, functions and atomic sums of floats in a launch; each counts 1.

    Both branches of an `if` are counted, and the body of a loop of unknown length once.

    Args:
        kernel: the kernel.
        shapes: of its arrays, by name, as far as they are known.
        arguments: its scalar arguments by name.
    """

    def is_known(formula: nodes.Expr) -> bool:
        parts = tuple(walk.parts(formula))
        arrays = (one.array for one in parts if isinstance(one, nodes.Size))
        names = (one.name for one in parts if isinstance(one, nodes.Argument))
        return shapes.keys() >= {*arrays} and arguments.keys() >= {*names}

    return evaluate(_sum(kernel.body, _flops_of, is_known), shapes, arguments)


def count_operations(kernel: nodes.Kernel, is_known: IsKnown) -> nodes.Expr:
    """Return a formula for what a launch costs, in operations: loads, stores, arithmetic; a function counts 10.

    Arithmetic counts whatever its type. Branches and loops of unknown length count as in `count_flops`.

    Args:
        kernel: the kernel.
        is_known: whether a formula for a loop's length may be asked for; else its body counts once.
    """
    return _sum(kernel.body, _operations_of, is_known)


def count_bytes(kernel: nodes.Kernel, is_known: IsKnown) -> nodes.Expr:
    """Return a formula for the bytes that a launch loads and stores. Arguments as in `count_operations`."""

    def weigh(one: nodes.Stmt) -> int:
        parts = walk.parts(*walk.expressions(one))
        touched = [part.array for part in parts if isinstance(part, nodes.Load)]
        touched += [one.array] if isinstance(one, nodes.Store | nodes.Atomic) else []
        # Local arrays are in registers or near them.
        return sum(_BYTES[kernel.arrays[name].type] for name in touched if name in kernel.arrays)

    return _sum(kernel.body, weigh, is_known)


def count_loss_by_atomics(kernel: nodes.Kernel, is_known: IsKnown, threads: int) -> nodes.Expr:
    """Return a formula for what a launch loses on several threads: if it is above 0, one thread is faster.

    One thread adds by a load and a store. Loops of data-dependent length are left out: several threads run them in
    lanes.

    Args:
        kernel: the kernel.
        is_known: whether a formula for a loop's length may be asked for.
        threads: how many share the work.
    """
    total: nodes.Expr = constant(0, Type.I64)
    for loop in filter(None, map(concurrent_loop, kernel.body)):
        # Not products: of what they cost nothing is known, and a deterministic op refuses those of several threads.
        shared = {one.array for one in shared_atomics(loop) if one.operator != AtomicOperator.MUL}
        if not shared or any(passes.find_data_dependent_loops(loop.body)):
            continue

        def weigh(one: nodes.Stmt, shared: set[str] = shared) -> int:
            # Several threads pay for the atomics, and save all of the other work but their own part of it.
            is_shared = isinstance(one, nodes.Atomic) and one.array in shared
            return is_shared * SHARED_ATOMIC - (threads - 1) * _operations_of(one)

        total = plus(total, _sum([loop], weigh, is_known, _UNKNOWN_TRIPS))
    return total


def count_text_operations(body: Sequence[nodes.Stmt]) -> int:
    """Count the operations of statements, each of which is counted as if it ran once."""
    return sum(map(_operations_of, walk.statements(body)))


def count_parallel_loops(kernel: nodes.Kernel) -> int:
    """Count the parallel loops of a kernel: each wakes the threads once for a launch."""
    return sum(walk.is_parallel(one) for one in walk.statements(kernel.body))


def _sum(
    body: Sequence[nodes.Stmt], weigh: Callable[[nodes.Stmt], int], is_known: IsKnown, unknown_trips: int = 1
) -> nodes.Expr:
    """Return what statements cost, as a formula of integers of any size.

    `weigh` returns the cost of a statement without those inside it.
    """
    own, inside = _add_up(body, weigh, is_known, unknown_trips)
    return plus(constant(own, Type.I64), inside)


def _add_up(
    body: Sequence[nodes.Stmt], weigh: Callable[[nodes.Stmt], int], is_known: IsKnown, unknown_trips: int
) -> tuple[int, nodes.Expr]:
    """Return the sum of the costs that are known numbers, and a formula for the others."""
    # Known numbers are added up here: a formula of them would be as deep as branches are, and Python's parser takes
    # at most 200 parentheses.
    own, inside = 0, constant(0, Type.I64)
    for one in body:
        own += weigh(one)
        number, bodies = 0, constant(0, Type.I64)
        for part in walk.bodies(one):
            known, other = _add_up(part, weigh, is_known, unknown_trips)
            number, bodies = number + known, plus(bodies, other)
        formula = extent(one.bounds) if isinstance(one, nodes.For) else None
        if formula is not None and is_known(formula):
            number, bodies = 0, times(formula, plus(constant(number, Type.I64), bodies))
        elif isinstance(one, nodes.For | nodes.While):
            number, bodies = unknown_trips * number, times(constant(unknown_trips, Type.I64), bodies)
        # A formula may be a known number too, of a loop whose length is one.
        if isinstance(bodies, nodes.Const):
            number, bodies = number + int(bodies.value), constant(0, Type.I64)
        own, inside = own + number, plus(inside, bodies)
    return own, inside


def _flops_of(one: nodes.Stmt) -> int:
    own = (part for part in walk.parts(*walk.expressions(one)) if isinstance(part, nodes.Unary | nodes.Binary))
    # The addition of an atomic stands in no expression.
    sums = [one.value] if isinstance(one, nodes.Atomic) else []
    return sum(types.is_float(part.type) for part in (*own, *sums))


def _operations_of(one: nodes.Stmt) -> int:
    count = sum(map(_operation, walk.parts(*walk.expressions(one))))
    match one:
        case nodes.Store():
            return count + 1
        case nodes.Atomic():
            return count + _ATOMIC
        case nodes.Draw():
            return count + _DRAW
        case nodes.Decompose():
            return count + _DECOMPOSITION
        case _:
            return count


def is_function(expr: nodes.Expr) -> bool:
    """Return True if an expression is a function of floats that takes about ten times as long as a product."""
    return isinstance(expr, nodes.Unary | nodes.Binary) and expr.operator in _FUNCTIONS


def _operation(expr: nodes.Expr) -> int:
    if is_function(expr):
        return _FUNCTION
    return isinstance(expr, nodes.Load | nodes.Unary | nodes.Binary | nodes.Select | nodes.Cast)
