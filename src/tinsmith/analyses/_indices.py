"""Indices of the IR as sums (`AffineIndex`), and ownership: arrays of which iterations touch elements of their own.

Atoms are locals, by name, and whatever is not a sum, as it is. Sizes and arguments are the same in every iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..ir import AffineIndex, Operator, Type, combine, each_moves_an_axis, nodes, walk
from ._definitions import definitions, whole_definitions

Atom = str | nodes.Expr
Bounds = Sequence[tuple[nodes.Expr, nodes.Expr]]
Access = nodes.Load | nodes.Store | nodes.Atomic


def affine(expr: nodes.Expr, definitions: Mapping[str, nodes.Expr]) -> AffineIndex:
    """An index as a sum.

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
    """Whether an atom has one value in all iterations in which some loop variables have."""
    return atom in still if isinstance(atom, str) else isinstance(atom, nodes.Size | nodes.Argument)


def concurrent_loop(task: nodes.Stmt) -> nodes.For | None:
    """A statement of the top level, if it is a loop whose iterations may run at once: not where there is only one."""
    if not isinstance(task, nodes.For) or not task.is_parallel:
        return None
    return task if moving_variables(task.names, task.bounds) else None


def find_owned(loop: nodes.For | nodes.Loop, arrays: Collection[str] | None = None) -> frozenset[str]:
    """Arrays of which no two iterations of a loop touch one element; of these `arrays`, if there are any."""
    accesses: Iterable[Access] = (*walk.loads(loop.body), *walk.stores(loop.body))
    if arrays is not None:
        accesses = [one for one in accesses if one.array in arrays]
    return find_owned_by(loop.names, loop.bounds, accesses, whole_definitions(definitions([loop])))


def shared_atomics(loop: nodes.For) -> Iterator[nodes.Atomic]:
    """Atomics in a parallel loop on elements that several iterations change."""
    atomics = [one for one in walk.stores(loop.body) if isinstance(one, nodes.Atomic)]
    own = find_owned(loop) if atomics else frozenset[str]()
    return (one for one in atomics if one.array not in own)


def find_owned_by(
    names: Sequence[str], bounds: Bounds, accesses: Iterable[Access], known: Mapping[str, nodes.Expr]
) -> frozenset[str]:
    """The same for a loop's names and bounds, and accesses to arrays in it, with the locals' `whole_definitions`."""
    indices_by_array: dict[str, list[tuple[nodes.Expr, ...]]] = {}
    for one in accesses:
        indices_by_array.setdefault(one.array, []).append(one.index)
    variables = moving_variables(names, bounds)

    def is_owned(indices: Iterable[tuple[nodes.Expr, ...]]) -> bool:
        sums = [[affine(expr, known) for expr in index] for index in dict.fromkeys(indices)]
        return each_moves_an_axis(variables, sums, is_invariant)

    return frozenset(name for name, indices in indices_by_array.items() if is_owned(indices))


def moving_variables(names: Sequence[str], bounds: Bounds) -> list[str]:
    """A loop's names that have more than one value, as far as is known."""
    return [name for name, pair in zip(names, bounds, strict=True) if not _has_one_value(*pair)]


def _has_one_value(first: nodes.Expr, end: nodes.Expr) -> bool:
    return isinstance(first, nodes.Const) and isinstance(end, nodes.Const) and end.value - first.value <= 1
