"""Values that launches leave alone once they were read: `x[t, i]` where every launch has a time of its own.

The reverse of a launch reads what the launch read. Where no later launch writes to these elements, the array as it was
left in the end holds them still, and nobody has to copy it or to run the launches before again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...source import Filed
from ...source.ir import nodes, walk
from ..analysis import affine, definitions, whole_definitions
from ._tasks import Block, parts_of

Axes = tuple[tuple[int, tuple[tuple[str, int], ...], int], ...]
"""Of an index, the axes that constants and arguments alone decide: multiples of arguments, and what is added."""


@dataclass(frozen=True)
class _Uses:
    """What a task loads and stores: pairs of an array and the known axes of an index."""

    loads: tuple[tuple[str, Axes], ...]
    stores: tuple[tuple[str, Axes], ...]


def unchanged_after(
    kernels: Sequence[nodes.Kernel], launches: Sequence[int], numbers: Sequence[Mapping[str, int]]
) -> frozenset[tuple[int, int, str]]:
    """Places of launches, numbers of their tasks, and arrays of which no later task changes what this one reads.

    Args:
        kernels: those that are launched.
        launches: for each launch the number of its kernel.
        numbers: for each launch the values of the kernel's integer arguments.
    """
    tasks = [_tasks(kernel) for kernel in kernels]
    later: dict[str, Filed] = {}
    found: set[tuple[int, int, str]] = set()
    for place in reversed(range(len(launches))):
        values = numbers[place]
        own = tasks[launches[place]]
        for part in reversed(range(len(own))):
            read: dict[str, bool] = {}
            for array, axes in own[part].loads:
                is_kept = array not in later or next(later[array].meeting(_known(axes, values)), None) is None
                read[array] = read.get(array, True) and is_kept
            found |= {(place, part, array) for array, is_kept in read.items() if is_kept}
            for array, axes in own[part].stores:
                known = _known(axes, values)
                later.setdefault(array, Filed()).add(tuple(known.items()), known, True)
    return frozenset(found)


def _known(axes: Axes, values: Mapping[str, int]) -> dict[int, int]:
    return {
        axis: constant + sum(factor * values[name] for name, factor in terms)
        for axis, terms, constant in axes
        if all(name in values for name, _ in terms)
    }


def _tasks(kernel: nodes.Kernel) -> list[_Uses]:
    return [_uses(task, whole_definitions(definitions(task))) for task in parts_of(kernel).tasks]


def _uses(task: Block, known: Mapping[str, nodes.Expr]) -> _Uses:
    def axes(index: Sequence[nodes.Expr]) -> Axes:
        sums = [affine(expr, known) for expr in index]
        terms = [tuple((_argument(expr), factor) for expr, factor in one.steady.items()) for one in sums]
        return tuple(
            (axis, tuple((name, factor) for name, factor in some if name), one.constant)
            for axis, (one, some) in enumerate(zip(sums, terms, strict=True))
            if not one.varying and all(name for name, _ in some)
        )

    fetched = (one for one in walk.stores(task) if isinstance(one, nodes.Atomic) and one.result is not None)
    loads = dict.fromkeys((one.array, axes(one.index)) for one in (*walk.loads(task), *fetched))
    stores = dict.fromkeys((one.array, axes(one.index)) for one in walk.stores(task))
    return _Uses(tuple(loads), tuple(stores))


def _argument(expr: nodes.Expr) -> str | None:
    """The name of a whole argument; None for what is none."""
    if not isinstance(expr, nodes.Argument) or expr.entry or expr.type not in ("i32", "i64"):
        return None
    return expr.name
