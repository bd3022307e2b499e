"""Indices of the IR as sums (`AffineIndex`), and ownership: arrays of which iterations touch elements of their own.

What several iterations change, they change by atomics, and of some of these the order matters.

Atoms are locals, by name, and whatever is not a sum, as it is. Sizes and arguments are the same in every iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..ir import AffineIndex, Operator, Type, combine, each_moves_an_axis, nodes, types, walk
from ._definitions import definitions, whole_definitions

Atom = str | nodes.Expr
Bounds = Sequence[tuple[nodes.Expr, nodes.Expr]]
Access = nodes.Load | nodes.Store | nodes.Atomic

_ROUNDED = ("add", "sub", "mul")
"""Operators that round floats, so that another order gives other last digits."""


def affine(expr: nodes.Expr, definitions: Mapping[str, nodes.Expr]) -> AffineIndex:
    """Return an index as a sum of atoms.

    Args:
        expr: the index.
        definitions: what locals are computed from that have one value wherever they are named.
    """
    match expr:
        case nodes.Const(value, Type.I32 | Type.I64):
            return AffineIndex(constant=int(value))
        case nodes.Local(name, Type.I32) if name in definitions:
            return affine(definitions[name], definitions)
        case nodes.Local(name):
            return AffineIndex({name: 1})
        case nodes.Binary(Operator.ADD | Operator.SUB | Operator.MUL as operator, left, right, Type.I32 | Type.I64):
            index = combine(operator, affine(left, definitions), affine(right, definitions))
            if index is not None:
                return index
    return AffineIndex({expr: 1})


def is_invariant(atom: Atom, still: Collection[str] = ()) -> bool:
    """Return True if an atom has one value in all iterations in which some loop variables (`still`) have one."""
    return atom in still if isinstance(atom, str) else isinstance(atom, nodes.Size | nodes.Argument)


def concurrent_loop(task: nodes.Stmt) -> nodes.For | None:
    """Return a statement of the top level if it is a loop whose iterations may run at once; otherwise None."""
    if not walk.is_parallel(task):
        return None
    return task if moving_variables(task.names, task.bounds) else None


def find_owned(loop: nodes.For | nodes.Loop, arrays: Collection[str] | None = None) -> frozenset[str]:
    """Return the arrays (if given, among `arrays`) without an element that two iterations of a loop touch."""
    accesses: Iterable[Access] = (*walk.loads(loop.body), *walk.stores(loop.body))
    if arrays is not None:
        accesses = [one for one in accesses if one.array in arrays]
    return find_owned_by(loop.names, loop.bounds, accesses, whole_definitions(definitions([loop])))


def shared_atomics(loop: nodes.For) -> Iterator[nodes.Atomic]:
    """Yield the atomics of a parallel loop on elements that several iterations change."""
    atomics = [one for one in walk.stores(loop.body) if isinstance(one, nodes.Atomic)]
    # Ownership is asked of all accesses of a loop, which takes long where there is no atomic to ask for.
    own = find_owned(loop) if atomics else frozenset[str]()
    return (one for one in atomics if one.array not in own)


def find_ordered_atomic(kernel: nodes.Kernel) -> nodes.Atomic | None:
    """Return the first atomic by which two runs may differ: it rounds a shared sum or product, or returns a value."""
    for loop in filter(None, map(concurrent_loop, kernel.body)):
        for one in shared_atomics(loop):
            if one.result is not None or (one.operator in _ROUNDED and types.is_float(one.value.type)):
                return one
    return None


def find_owned_by(
    names: Sequence[str], bounds: Bounds, accesses: Iterable[Access], known: Mapping[str, nodes.Expr]
) -> frozenset[str]:
    """Return the owned arrays (`find_owned`) of a loop's names and bounds, given the accesses in its body."""
    indices_by_array: dict[str, list[tuple[nodes.Expr, ...]]] = {}
    for one in accesses:
        indices_by_array.setdefault(one.array, []).append(one.index)
    variables = moving_variables(names, bounds)

    def is_owned(indices: Iterable[tuple[nodes.Expr, ...]]) -> bool:
        sums = [[affine(expr, known) for expr in index] for index in dict.fromkeys(indices)]
        return each_moves_an_axis(variables, sums, is_invariant)

    return frozenset(name for name, indices in indices_by_array.items() if is_owned(indices))


def moving_variables(names: Sequence[str], bounds: Bounds) -> list[str]:
    """Return the loop variables that may take more than one value."""
    return [name for name, pair in zip(names, bounds, strict=True) if not _has_one_value(*pair)]


def _has_one_value(first: nodes.Expr, end: nodes.Expr) -> bool:
    return isinstance(first, nodes.Const) and isinstance(end, nodes.Const) and end.value - first.value <= 1
