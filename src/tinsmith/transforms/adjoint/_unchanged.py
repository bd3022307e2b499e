"""Values that launches leave alone once they were read: `x[t, i]` where every launch has a time of its own.

The reverse of a launch reads what the launch read. Where no later launch writes to these elements, the array as it was
left in the end holds them still, and nobody has to copy it or to run the launches before again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...source import Filed
from ...source.ir import nodes, walk
from ._evaluated import evaluated
from ._tasks import Block, parts_of

Axes = tuple[tuple[int, nodes.Expr, frozenset[str]], ...]
"""Of an index, the axes that constants and arguments alone decide, and the names of these arguments."""


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
    return {axis: evaluated(expr, {}, values) for axis, expr, names in axes if names <= values.keys()}


def _tasks(kernel: nodes.Kernel) -> list[_Uses]:
    return [_uses(task, _definitions(task)) for task in parts_of(kernel).tasks]


def _uses(task: Block, definitions: Mapping[str, nodes.Expr]) -> _Uses:
    def axes(index: Sequence[nodes.Expr]) -> Axes:
        exprs = (_resolved(expr, definitions) for expr in index)
        return tuple((axis, expr, _arguments(expr)) for axis, expr in enumerate(exprs) if expr is not None)

    fetched = (one for one in walk.stores(task) if isinstance(one, nodes.Atomic) and one.result is not None)
    loads = dict.fromkeys((one.array, axes(one.index)) for one in (*walk.loads(task), *fetched))
    stores = dict.fromkeys((one.array, axes(one.index)) for one in walk.stores(task))
    return _Uses(tuple(loads), tuple(stores))


def _arguments(expr: nodes.Expr) -> frozenset[str]:
    return frozenset(part.name for part in walk.parts(expr) if isinstance(part, nodes.Argument))


def _definitions(task: Block) -> dict[str, nodes.Expr]:
    """Locals that get their value at one place."""
    given: dict[str, list[nodes.Expr | None]] = {}
    for one in walk.statements(task):
        value = one.value if isinstance(one, nodes.Assign) else None
        for name in walk.assigned(one):
            given.setdefault(name, []).append(value)
    return {name: values[0] for name, values in given.items() if len(values) == 1 and values[0] is not None}


def _resolved(expr: nodes.Expr, definitions: Mapping[str, nodes.Expr]) -> nodes.Expr | None:
    """An index of constants and arguments alone; None for another."""
    match expr:
        case nodes.Const() | nodes.Argument(entry=()) if expr.type in ("i32", "i64"):
            return expr
        case nodes.Local(name) if name in definitions:
            return _resolved(definitions[name], definitions)
        case nodes.Binary("+" | "-" | "*", left, right):
            first, second = _resolved(left, definitions), _resolved(right, definitions)
            return None if first is None or second is None else nodes.Binary(expr.operator, first, second, expr.type)
        case _:
            return None
