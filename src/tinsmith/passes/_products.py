"""Atomic products as ordinary ones, where no other iteration touches the element.

    for i in 0 .. n:                             for i in 0 .. n:
        atomic mul y[0], x[i]              ->        old = y[0]
                                                     y[0] = old * x[i]

Both engines (Taichi 1.7.4, Quadrants 1.3.3) make an ordinary operation of an atomic that they find no use for: in code
that runs in order, and on an element that a parallel loop's own index names. They know none for products, and end the
process ("atomic_to_binary_op_type: Not supported"). So such a product is written out before an engine sees it; one
on an element that several iterations change stays, and compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..analyses import definitions, single_definitions
from ..ir import AtomicOperator, Names, Operator, Type, cast, nodes, times, walk

Ask = Callable[[nodes.Atomic], bool]


def write_out_products(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return the kernel with `a[i] = a[i] * v` for atomic products on elements that no other iteration touches."""
    if not any(
        isinstance(one, nodes.Atomic) and one.operator == AtomicOperator.MUL for one in walk.stores(kernel.body)
    ):
        return kernel
    names = Names.of_kernel(kernel)
    kinds = {name: array.type for name, array in kernel.arrays.items()}
    body = tuple([new for task in kernel.body for new in _block([task], _make_ownership_test(task), kinds, names)])
    return replace(kernel, body=body, locals=names.types)


def is_alone_in(task: nodes.Stmt, one: nodes.Atomic) -> bool:
    """Return True if an iteration of a task has the element of one of its atomics to itself."""
    return _make_ownership_test(task)(one)


def _make_ownership_test(task: nodes.Stmt) -> Ask:
    """Return a function that says whether an iteration of the task has the element of an atomic to itself."""
    if not walk.is_parallel(task):
        return lambda one: True
    values = single_definitions(definitions(task.body))
    indices: dict[str, set[tuple[nodes.Expr, ...]]] = {}
    for access in (*walk.loads(task.body), *walk.stores(task.body)):
        indices.setdefault(access.array, set()).add(tuple([_resolve_copies(axis, values) for axis in access.index]))

    def is_alone(one: nodes.Atomic) -> bool:
        # One index for all accesses, which is another element in each iteration.
        moved = [{name for name in task.names if _moves_with(axis, name, values)} for axis in one.index]
        return len(indices[one.array]) == 1 and set().union(*moved) == {*task.names}

    return is_alone


def _resolve_copies(expr: nodes.Expr, values: dict[str, nodes.Expr]) -> nodes.Expr:
    """Return an expression in which a copy is replaced by the local it was copied from (functions copy parameters)."""
    while isinstance(expr, nodes.Local) and isinstance(values.get(expr.name), nodes.Local):
        expr = values[expr.name]
    return walk.rebuild(expr, lambda part: _resolve_copies(part, values))


def _moves_with(index: nodes.Expr, name: str, values: dict[str, nodes.Expr]) -> bool:
    """Return True if an index is a loop's variable, plus or minus a constant: each iteration has another one."""
    match index:
        case nodes.Local() if index.name == name:
            return True
        case nodes.Local() if index.name in values:
            return _moves_with(values[index.name], name, values)
        case nodes.Cast():
            return _moves_with(index.value, name, values)
        case nodes.Binary(Operator.ADD | Operator.SUB | Operator.BIT_XOR, left, right):
            sides = [(left, right), (right, left)]
            return any(_moves_with(a, name, values) and walk.is_invariant(b) for a, b in sides)
    return False


def _block(body: Sequence[nodes.Stmt], is_alone: Ask, kinds: dict[str, Type], names: Names) -> Iterator[nodes.Stmt]:
    def inside(statements: Sequence[nodes.Stmt]) -> nodes.Block:
        return tuple(_block(statements, is_alone, kinds, names))

    for one in body:
        match one:
            case nodes.Atomic(AtomicOperator.MUL) if is_alone(one):
                yield from _written_out(one, kinds[one.array], names)
            case _:
                yield walk.with_bodies(one, inside)


def _written_out(one: nodes.Atomic, kind: Type, names: Names) -> Iterator[nodes.Stmt]:
    old = names.local("old", kind)
    yield nodes.Assign(old.name, nodes.Load(one.array, one.index, one.entry, kind), one.line)
    yield nodes.Store(one.array, one.index, one.entry, times(old, cast(one.value, kind)), one.line)
    if one.result is not None:
        yield nodes.Assign(one.result, old, one.line)
