"""The first step of the adjoint: kernels as tasks in SSA form, with what has a gradient in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ...analyses import Activity
from ...ir import nodes, types, verify_after
from .._bits import Part, check_bits
from ._dependences import find_written_once
from ._frame_reversal import Task
from ._parallelize import parallelize
from ._promises import Promise
from ._reversible import Reversible, WantedGradients, adjoint_names, reversibles
from ._split import split
from ._ssa import number_steps, plain_steps
from ._tasks import parts_of


@dataclass(frozen=True)
class NormalForm:
    """What is reversed.

    Attributes:
        tasks: the tasks in SSA form, in the order of the forward pass.
        activities: what has a gradient in each.
        arrays: all arrays, by name.
        cells: those that are the kernels' own, or that nobody kept.
        gradients: names of the adjoints of arrays that have one.
        once: numbers of stores that write an element which nothing wrote or read before.
        order: for each launch the number of its kernel.
        numbers: gives numbers to new steps.
    """

    tasks: Sequence[Reversible]
    activities: Sequence[Activity]
    arrays: dict[str, nodes.Array]
    cells: frozenset[str]
    gradients: dict[str, str]
    once: frozenset[int]
    order: Sequence[int]
    numbers: count[int]

    def to_reverse(self) -> list[Task]:
        """Return each task with what its reverse is made from."""
        return [
            Task(
                task.kernel,
                number,
                task.steps,
                task.own,
                activity,
                task.names,
                {name: gradient for name, gradient in self.gradients.items() if activity.has_array(name)},
                self.once,
            )
            for number, (task, activity) in enumerate(zip(self.tasks, self.activities, strict=True))
        ]


def normalize(
    kernels: Sequence[nodes.Kernel],
    active: Collection[str],
    outputs: Collection[str],
    *,
    detached: Collection[str],
    private: Collection[str],
    launches: Sequence[int] | None,
    promises: Mapping[str, Promise],
    refuses_possible_races: bool,
) -> NormalForm:
    """Bring kernels into the form that is reversed. The arguments are those of `adjoint`.

    Maxima and minima become ordinary statements, `break` and `continue` truths, atomics whose results matter loads and
    stores; each local has one value, each load a statement of its own, and active expressions are taken apart as far as
    their derivatives need the values of their parts.

    Raises:
        NotCovered: a kernel does what cannot be reversed.
    """
    parts = [parts_of(kernel) for kernel in kernels]
    arrays = {name: array for part in parts for name, array in part.kernel.arrays.items()}
    cells = frozenset(cell for part in parts for cell in part.cells) | frozenset(private)
    detached = {*detached, *(name for name, array in arrays.items() if not array.is_differentiable)}
    adjoints = adjoint_names([part.kernel for part in parts], arrays)
    order = range(len(kernels)) if launches is None else launches
    wanted = WantedGradients(active, frozenset(outputs) - detached, detached, order)
    tasks = reversibles(parts, adjoints, wanted, promises, refuses_possible_races=refuses_possible_races)
    activities = wanted.activities([task.steps for task in tasks], [task.source for task in tasks])
    for task, activity in zip(tasks, activities, strict=True):
        _check_order(task, activity)
    check_bits(*(_part(task, activity) for task, activity in zip(tasks, activities, strict=True)))
    numbers = count(1)
    tasks = [
        _split(parallelize(task, activity), activity, numbers) for task, activity in zip(tasks, activities, strict=True)
    ]
    gradients = {name: adjoints[name] for name in arrays if any(one.has_array(name) for one in activities)}
    counts = Counter(order)
    repeated = {number for number, task in enumerate(tasks) if counts[task.source] > 1}
    once = find_written_once([task.steps for task in tasks], [task.own for task in tasks], active, repeated)
    return NormalForm(tasks, activities, arrays, cells, gradients, once, order, numbers)


def _split(task: Reversible, activity: Activity, numbers: count[int]) -> Reversible:
    steps = number_steps(split(task.steps, activity, task.names), numbers)
    verify_after("normalize", replace(task.kernel, body=steps, locals=task.names.types), is_ssa=True)
    return replace(task, steps=steps)


def _check_order(task: Reversible, activity: Activity) -> None:
    """Refuse a parallel loop whose result depends on the order of its iterations, where it has a gradient."""
    for array, reason in task.races.items():
        if activity.has_array(array):
            raise reason


def _part(task: Reversible, activity: Activity) -> Part:
    integers = {f"@{name}" for name, array in task.kernel.arrays.items() if not types.is_float(array.type)}

    def is_useful(name: str) -> bool:
        return name not in integers and activity.is_useful(name)

    return Part([*plain_steps(task.steps)], activity.varies, is_useful, task.kernel.path)
