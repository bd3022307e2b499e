"""Whether a kernel may reach one element by two names."""

from __future__ import annotations

from collections.abc import Sequence

from ..source.ir import nodes, walk


def has_aliases(body: Sequence[nodes.Stmt]) -> bool:
    """Whether an array that statements read and change is indexed in more than one way."""
    ways: dict[str, set[tuple[nodes.Expr, ...]]] = {}
    read, changed = set[str](), set[str]()
    for load in walk.loads(body):
        ways.setdefault(load.array, set()).add(load.index)
        read.add(load.array)
    for store in walk.stores(body):
        ways.setdefault(store.array, set()).add(store.index)
        changed.add(store.array)
    return any(len(ways[name]) > 1 for name in read & changed)
