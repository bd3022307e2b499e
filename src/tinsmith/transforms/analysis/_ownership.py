"""Ownership: arrays of which no two iterations of a parallel loop touch one element, as their indices tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...source.ir import nodes, walk


def concurrent_loop(task: nodes.Stmt) -> nodes.For | None:
    """A statement of the top level, if it is a loop whose iterations may run at once: not where there is only one."""
    if not isinstance(task, nodes.For) or not task.is_parallel:
        return None
    return None if all(_counts_one(*bound) for bound in task.bounds) else task


def _counts_one(first: nodes.Expr, end: nodes.Expr) -> bool:
    return isinstance(first, nodes.Const) and isinstance(end, nodes.Const) and end.value - first.value <= 1


def owned(loop: nodes.For) -> frozenset[str]:
    """Arrays whose every access in a parallel loop has the loop's own names at the same places of its index."""
    accesses: dict[str, set[tuple[int, ...]]] = {}
    copies = _copies(loop.body)
    for one in [*walk.loads(loop.body), *walk.stores(loop.body)]:
        accesses.setdefault(one.array, set()).add(_places(one.index, loop.names, copies))
    return frozenset(name for name, places in accesses.items() if len(places) == 1 and -1 not in next(iter(places)))


def _copies(body: Sequence[nodes.Stmt]) -> dict[str, str]:
    """Locals that are another one by another name: parameters of functions, for instance."""
    values: dict[str, list[nodes.Expr | None]] = {}
    for one in walk.statements(body):
        for name in walk.assigned(one):
            values.setdefault(name, []).append(one.value if isinstance(one, nodes.Assign) else None)
    only = ((name, given[0]) for name, given in values.items() if len(given) == 1)
    return {
        name: value.name
        for name, value in only
        if isinstance(value, nodes.Local) and len(values.get(value.name, ())) < 2
    }


def _places(index: tuple[nodes.Expr, ...], names: tuple[str, ...], copies: Mapping[str, str]) -> tuple[int, ...]:
    """Where in an index each name stands alone; -1 where it does not."""
    held = []
    for one in index:
        name = one.name if isinstance(one, nodes.Local) else ""
        while name in copies:
            name = copies[name]
        held.append(name)
    return tuple(held.index(name) if name in held else -1 for name in names)
