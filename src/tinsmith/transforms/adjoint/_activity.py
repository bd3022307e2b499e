"""Activity: which locals and arrays depend on an input that wants a gradient, and reach a result that has one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...source.ir import nodes, types
from .._flow import Edge, reached, sources
from ._form import Loop, Step, steps_in


def activities_of(
    tasks: Sequence[Sequence[Step]], inputs: Iterable[str], outputs: Iterable[str], closed: Iterable[str] = ()
) -> list[Activity]:
    """What has a gradient, task by task.

    Args:
        tasks: the steps of every task of an op.
        inputs: arrays that want a gradient.
        outputs: arrays that are given one.
        closed: arrays that let none through.
    """
    shut = {f"@{name}" for name in closed}
    every = ((number, edge) for number, steps in enumerate(tasks) for step in steps_in(steps) for edge in _edges(step))
    edges = [(_key(number, start), _key(number, end)) for number, (start, end) in every if not shut & {start, end}]
    varied = reached({f"@{name}" for name in inputs}, edges)
    useful = reached({f"@{name}" for name in outputs}, [(end, start) for start, end in edges])
    numbers = range(len(tasks))
    return [Activity(_names(number, varied & useful), _names(number, varied)) for number in numbers]


def _names(number: int, keys: set[str]) -> set[str]:
    """Arrays, and one task's locals."""
    head = f"{number} "
    return {key.removeprefix(head) for key in keys if key.startswith(("@", head))}


def _key(number: int, name: str) -> str:
    """Arrays are the same in all tasks, locals of one name are not."""
    return name if name.startswith("@") else f"{number} {name}"


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
