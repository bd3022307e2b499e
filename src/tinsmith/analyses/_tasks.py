"""Tasks: the parallel loops of a kernel's top level, and what stands between two of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import nodes, walk


def tasks_of(body: Sequence[nodes.Stmt]) -> tuple[nodes.Block, ...]:
    """Return the statements of a kernel's top level, task by task."""
    tasks: list[nodes.Block] = []
    between: list[nodes.Stmt] = []
    for one in body:
        if not walk.is_parallel(one):
            between.append(one)
            continue
        if between:
            tasks.append(tuple(between))
            between = []
        tasks.append((one,))
    return (*tasks, tuple(between)) if between else tuple(tasks)


def find_parallel_loop(task: Sequence[nodes.Stmt]) -> nodes.For | None:
    """Return the parallel loop that a task is; None for what stands between two."""
    return task[-1] if task and walk.is_parallel(task[-1]) else None
