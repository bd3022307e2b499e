"""The first step of the adjoint: kernels as tasks in SSA form, with what has a gradient in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ....analyses import Activity
from ....ir import nodes, types
from ..._bits import Part, check_bits
from .._dependences import Unchanged, find_written_once
from .._promises import Promise
from .._ssa import number_steps, plain_steps
from .._task import Task
from .._tasks import parts_of
from ._parallelize import parallelize
from ._reversible import Reversible, WantedGradients, adjoint_names, reversibles
from ._split import split


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

    @property
    def is_one_task(self) -> bool:
        """Whether the op is one task, launched once, that can itself be the forward pass."""
        return len(self.tasks) == len(self.order) == 1 and not self.cells and self.tasks[0].is_as_written

    @property
    def kernels(self) -> Iterator[nodes.Kernel]:
        """Each task as a kernel in SSA form."""
        return (replace(task.kernel, body=task.steps, locals=task.names.types) for task in self.tasks)

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


@dataclass(frozen=True, kw_only=True)
class AdjointOptions:
    """What an adjoint depends on, besides the kernels of the op.

    Attributes:
        active: inputs that want a gradient.
        outputs: arrays whose adjoint is given.
        made: outputs and scratch: they start at zero.
        detached: those of them that get no gradient and let none through.
        private: other arrays that start at zero, and that nobody kept.
        launches: for each launch the number of its kernel; None where each kernel is launched once.
        unchanged: what `find_unchanged_after` gives for them.
        promises: what the spec says of the numbers in inputs, by name.
        has_checkpoints: whether loops run in blocks, so that their tapes are short.
        refuses_possible_races: whether a parallel loop has no gradient if its iterations may race; in any case it has
            none if they certainly do.
        keeps_results: whether to look for what a forward pass may keep of loops (`Program.results`).
        keeps_functions: whether a forward pass that keeps something of loops keeps values of functions too, where
            memory costs less than they do.
    """

    active: Collection[str]
    outputs: Collection[str]
    made: Collection[str]
    detached: Collection[str] = ()
    private: Collection[str] = ()
    launches: Sequence[int] | None = None
    unchanged: Collection[Unchanged] = ()
    promises: Mapping[str, Promise] = field(default_factory=dict)
    has_checkpoints: bool = False
    refuses_possible_races: bool = False
    keeps_results: bool = True
    keeps_functions: bool = False


def normalize_kernels(kernels: Sequence[nodes.Kernel], options: AdjointOptions) -> NormalForm:
    """Bring the kernels of an op, in the order of their first launches, into the form that is reversed.

    Maxima and minima become ordinary statements, `break` and `continue` truths, atomics whose results matter loads and
    stores; each local has one value, each load a statement of its own, and active expressions are taken apart as far as
    their derivatives need the values of their parts.

    Raises:
        NotCovered: a kernel does what cannot be reversed.
    """
    parts = [parts_of(kernel) for kernel in kernels]
    arrays = {name: array for part in parts for name, array in part.kernel.arrays.items()}
    cells = frozenset(cell for part in parts for cell in part.cells) | frozenset(options.private)
    detached = {*options.detached, *(name for name, array in arrays.items() if not array.is_differentiable)}
    adjoints = adjoint_names([part.kernel for part in parts], arrays)
    order = range(len(kernels)) if options.launches is None else options.launches
    wanted = WantedGradients(options.active, frozenset(options.outputs) - detached, detached, order)
    tasks = reversibles(
        parts, adjoints, wanted, options.promises, refuses_possible_races=options.refuses_possible_races
    )
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
    once = find_written_once([task.steps for task in tasks], [task.own for task in tasks], options.active, repeated)
    return NormalForm(tasks, activities, arrays, cells, gradients, once, order, numbers)


def _split(task: Reversible, activity: Activity, numbers: count[int]) -> Reversible:
    return replace(task, steps=number_steps(split(task.steps, activity, task.names), numbers))


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
