"""Ownership: arrays of which no two iterations of a parallel loop touch one element, as their indices tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...source.ir import nodes, walk
from ._affine import affine, are_owned
from ._definitions import definitions, whole_definitions

Bounds = Sequence[tuple[nodes.Expr, nodes.Expr]]
Access = nodes.Load | nodes.Store | nodes.Atomic


def concurrent_loop(task: nodes.Stmt) -> nodes.For | None:
    """A statement of the top level, if it is a loop whose iterations may run at once: not where there is only one."""
    if not isinstance(task, nodes.For) or not task.is_parallel:
        return None
    return task if _moving(task.names, task.bounds) else None


def owned(loop: nodes.For) -> frozenset[str]:
    """Arrays of which no two iterations of a loop touch one element."""
    accesses = (*walk.loads(loop.body), *walk.stores(loop.body))
    return owned_by(loop.names, loop.bounds, accesses, whole_definitions(definitions([loop])))


def owned_by(
    names: Sequence[str], bounds: Bounds, accesses: Iterable[Access], known: Mapping[str, nodes.Expr]
) -> frozenset[str]:
    """The same for a loop's names and bounds, and accesses to arrays in it, with the locals' `whole_definitions`."""
    found: dict[str, list[tuple[nodes.Expr, ...]]] = {}
    for one in accesses:
        found.setdefault(one.array, []).append(one.index)
    moving = _moving(names, bounds)
    return frozenset(
        name
        for name, indices in found.items()
        if are_owned(moving, [[affine(expr, known) for expr in index] for index in dict.fromkeys(indices)])
    )


def _moving(names: Sequence[str], bounds: Bounds) -> list[str]:
    """A loop's names that have more than one value, as far as is known."""
    return [name for name, pair in zip(names, bounds, strict=True) if not _has_one_value(*pair)]


def _has_one_value(first: nodes.Expr, end: nodes.Expr) -> bool:
    return isinstance(first, nodes.Const) and isinstance(end, nodes.Const) and end.value - first.value <= 1
