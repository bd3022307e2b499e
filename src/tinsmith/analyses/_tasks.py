"""Tasks: the parallel loops of a kernel's top level, and what stands between two of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import nodes


def tasks_of(body: Sequence[nodes.Stmt]) -> tuple[nodes.Block, ...]:
    """Return the statements of a kernel's top level, task by task."""
    tasks: list[nodes.Block] = []
    between: list[nodes.Stmt] = []
    for one in body:
        if not (isinstance(one, nodes.For) and one.is_parallel):
            between.append(one)
            continue
        if between:
            tasks.append(tuple(between))
            between = []
        tasks.append((one,))
    return (*tasks, tuple(between)) if between else tuple(tasks)
