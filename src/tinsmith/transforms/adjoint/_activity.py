"""Activity: which locals and arrays depend on an input that wants a gradient, and reach a result that has one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...source.ir import nodes, types
from .._flow import Edge, reached, sources
from ._form import Loop, Step, steps_in


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
    edges = [[edge for step in steps_in(steps) for edge in _edges(step) if not shut & {*edge}] for steps in tasks]
    turns = range(len(tasks)) if order is None else order
    varied = _along(turns, edges, {f"@{name}" for name in inputs})
    useful = _along(turns[::-1], [[(end, start) for start, end in some] for some in edges], {f"@{n}" for n in outputs})
    return [Activity(one & other, one) for one, other in zip(varied, useful, strict=True)]


def _along(turns: Sequence[int], edges: Sequence[Sequence[Edge]], start: set[str]) -> list[set[str]]:
    """What edges lead to in each task, in the course of turns: from one to the next go arrays, not locals."""
    found = [set[str]() for _ in edges]
    arrays = start
    for number in turns:
        here = reached(arrays, edges[number])
        found[number] |= here
        arrays = {key for key in here if key.startswith("@")}
    return found


class Activity:
    """What has a gradient in one task: locals by name, arrays with an `@` before it."""

    def __init__(self, active: set[str], varied: set[str]) -> None:
        self._active = active
        self._varied = varied

    def __contains__(self, local: str) -> bool:
        return local in self._active

    def add(self, local: str) -> None:
        """A new local that stands for a part of an active expression."""
        self._active.add(local)

    def has_array(self, name: str) -> bool:
        """Whether an array has an adjoint."""
        return f"@{name}" in self._active

    def depends(self, expr: nodes.Expr) -> bool:
        """Whether an expression's value has an adjoint."""
        return any(source in self._active for source in sources(expr))

    def varies(self, expr: nodes.Expr) -> bool:
        """Whether an expression's value depends on an input that wants a gradient, wherever it goes."""
        return any(source in self._varied for source in sources(expr))


def _edges(step: Step) -> Iterator[Edge]:
    match step:
        case nodes.Assign():
            yield from ((source, step.name) for source in sources(step.value))
        case nodes.Store() | nodes.Atomic():
            yield from ((source, f"@{step.array}") for source in sources(step.value))
        case Loop():
            for one in step.carried:
                for source in (*sources(one.first), *sources(one.next)):
                    yield source, one.head
                    yield source, one.last
        case _:
            return
    if isinstance(step, nodes.Atomic) and step.result is not None and types.is_float(step.value.type):
        yield f"@{step.array}", step.result
