"""Activity: which locals and arrays depend on an input that wants a gradient, and reach a result that has one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...source.ir import nodes, walk
from ..analysis import Activity, Edge, along, edges_of, sources
from ._ssa import Step


def activities_of(
    tasks: Sequence[Sequence[Step]],
    inputs: Iterable[str],
    outputs: Iterable[str],
    closed: Iterable[str] = (),
    order: Sequence[int] | None = None,
) -> list[Activity]:
    """What has a gradient, task by task.

    An array depends on the inputs from the first task on that gives it something that does, and reaches the outputs up
    to the last one from which it does; inside a task the order of statements does not count. What a task does to an
    array that is only later active need not be reversed, so what it reads need not be kept.

    Args:
        tasks: the steps of every task of an op.
        inputs: arrays that want a gradient.
        outputs: arrays that are given one.
        closed: arrays that let none through.
        order: numbers of the tasks in the order in which they run, each as often as it does; left out, each runs once.
    """
    shut = {f"@{name}" for name in closed}
    edges = [[edge for step in walk.statements(task) for edge in _edges(step) if not shut & {*edge}] for task in tasks]
    turns = range(len(tasks)) if order is None else order
    varied = along(turns, edges, {f"@{name}" for name in inputs})
    useful = along(turns[::-1], [[(end, start) for start, end in some] for some in edges], {f"@{n}" for n in outputs})
    return [Activity(one & other, one) for one, other in zip(varied, useful, strict=True)]


def _edges(step: Step) -> Iterator[Edge]:
    if not isinstance(step, nodes.Loop):
        yield from edges_of(step)
        return
    for one in step.carried:
        for source in (*sources(one.first), *sources(one.next)):
            yield source, one.head
            yield source, one.last
