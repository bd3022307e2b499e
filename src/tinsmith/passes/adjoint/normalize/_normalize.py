"""The first step of the adjoint: kernels as tasks in SSA form, with what has a gradient in each.

    for i in range(n):                         parallel loop i in 0 .. n:
        t = 1.0                                    t_1 = 1.0
        for k in range(4):                         loop k in 0 .. 4:
            t = t * sin(x[k] + t)                      carry t_2 = t_1 then t_3 last t_4
        y[i] = t                        ->             x_at = x[k]
                                                       t_6 = x_at + t_2
                                                       t_7 = sin(t_6)
                                                       t_3 = t_2 * t_7
                                                   y[i] = t_4

`_build_ssa` describes how statements become steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ....analyses import Activity, tasks_of
from ....ir import Names, Operator, nodes, types, walk
from ..._bits import Part, check_bits
from ..._rename_arrays import rename_arrays
from ...polish import is_atomic_addition
from .._access import find_owned
from .._dependences import Unchanged, find_written_once
from .._promises import Promise
from .._ssa import Step, number_steps, plain_steps
from .._tasks import Parts, Task, parts_of
from ._reversible import Reversible, WantedGradients, adjoint_names, reversibles


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
        """Return True if the op is one task, launched once, whose form can itself be the forward pass."""
        return len(self.tasks) == len(self.order) == 1 and not self.cells and self.tasks[0].is_as_written

    @property
    def kernels(self) -> Iterator[nodes.Kernel]:
        """Return each task as a kernel in SSA form."""
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
        allocations: outputs and scratch: they start at zero.
        detached: those of them that get no gradient and let none through.
        private: other arrays that start at zero, and that nobody kept.
        launches: for each launch the number of its kernel; None where each kernel is launched once.
        unchanged: what `find_unchanged_after` gives for them.
        promises: what the spec says of the numbers in inputs, by name.
        has_checkpoints: whether loops run in blocks, so that their tapes are short.
        refuses_possible_races: whether a parallel loop has no gradient if its iterations may race; in any case it has
            none if they certainly do.
        keeps_results: whether to look for what a forward pass may keep of loops (`AdjointProgram.results`).
        keeps_functions: whether a forward pass that keeps something of loops keeps values of functions too, where
            memory costs less than they do.
    """

    active: Collection[str]
    outputs: Collection[str]
    allocations: Collection[str]
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
    parts = _separate_cells([parts_of(kernel) for kernel in kernels])
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
    # One count for all tasks: `once` names steps of any of them.
    numbers = count(1)
    tasks = [
        _split(parallelize(task, activity), activity, numbers) for task, activity in zip(tasks, activities, strict=True)
    ]
    gradients = {name: adjoints[name] for name in arrays if any(one.has_array(name) for one in activities)}
    counts = Counter(order)
    # A task of a kernel that is launched again may store where its last launch did, so it cannot be the first.
    repeated = {number for number, task in enumerate(tasks) if counts[task.source] > 1}
    once = find_written_once([task.steps for task in tasks], [task.own for task in tasks], options.active, repeated)
    return NormalForm(tasks, activities, arrays, cells, gradients, once, order, numbers)


def _separate_cells(parts: Sequence[Parts]) -> list[Parts]:
    """Rename cells so that no other kernel has an array or a cell of the same name.

    Cells are variables of a kernel: those of two kernels may have one name and two types.
    """
    names = Names(name for part in parts for name in part.kernel.arrays.keys() - part.cells)
    separate: list[Parts] = []
    for part in parts:
        moved = {name: names.fresh(name) for name in sorted(part.cells)}
        kernel = rename_arrays(part.kernel, moved)
        tasks = part.tasks if kernel is part.kernel else tasks_of(kernel.body)
        separate.append(Parts(kernel, tasks, frozenset(moved.values())))
    return separate


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


# Active expressions -----------------------------------------------------------------------------
# They are taken apart as far as their derivatives need the values of their parts.


_LINEAR = frozenset({"+", "-", "neg"})


def split(body: Sequence[Step], activity: Activity, names: Names) -> tuple[Step, ...]:
    """Assign the operands of differentiated, nonlinear operations to new locals, so that their reverse can name them.

    An operand may stay as it is if it is a local or a product of locals.
    """
    return _Splitting(activity, names).block(body)


class _Splitting:
    def __init__(self, activity: Activity, names: Names) -> None:
        self.activity = activity
        self.names = names
        self.steps: list[Step] = []

    def block(self, body: Sequence[Step]) -> tuple[Step, ...]:
        outer, self.steps = self.steps, []
        for step in body:
            self.steps.append(self.step(step))
        steps, self.steps = tuple(self.steps), outer
        return steps

    def step(self, step: Step) -> Step:
        match step:
            case nodes.Assign() if step.name in self.activity and not isinstance(step.value, nodes.Load):
                return replace(step, value=self.split_expression(step.value, step.name, step.line, is_root=True))
            case _:
                return walk.with_bodies(step, self.block)

    def split_expression(self, expr: nodes.Expr, wish: str, line: int, *, is_root: bool = False) -> nodes.Expr:
        """Split an expression until its derivative can be written down: a sum of named values, or one operation."""
        if isinstance(expr, nodes.Leaf) or not self.activity.depends(expr):
            return expr
        if isinstance(expr, nodes.Cast):
            return replace(expr, value=self.split_expression(expr.value, wish, line))
        # The derivative of a sum needs the value of no part, so nothing has to be named for it.
        if isinstance(expr, nodes.Unary | nodes.Binary) and expr.operator in _LINEAR:
            return walk.rebuild(expr, lambda part: self.split_expression(part, wish, line))
        # The derivative of a product is made of its factors; the product itself is not needed.
        if is_root or (isinstance(expr, nodes.Binary) and expr.operator == Operator.MUL):
            return walk.rebuild(expr, lambda part: self.leaf(part, wish, line))
        return self.leaf(expr, wish, line)

    def leaf(self, expr: nodes.Expr, wish: str, line: int) -> nodes.Expr:
        """Give an expression a name by a step before this one, unless it has one; return the local."""
        if isinstance(expr, nodes.Leaf):
            return expr
        is_active = self.activity.depends(expr)
        value = self.split_expression(expr, wish, line, is_root=True) if is_active else expr
        name = self.names.fresh(wish, expr.type)
        self.steps.append(nodes.Assign(name, value, line))
        if is_active:
            self.activity.add(name)
        return nodes.Local(name, expr.type)


# Serial loops -----------------------------------------------------------------------------------
# The reverse of one with independent iterations can run in parallel. A kernel may ask for one thread because its
# iterations add up in one place (`ti.loop_config(serialize=True)`), where atomic additions would cost more than a
# second thread gains. Its reverse only gathers there.


def parallelize(task: Reversible, activity: Activity) -> Reversible:
    """Make a task's serial loop parallel if its reverse then takes no atomic and gives the same bits."""
    *before, loop = task.steps
    if not isinstance(loop, nodes.Loop) or loop.is_parallel or not _is_plain(loop) or not _are_bounds(before, loop):
        return task
    steps = (*before, replace(loop, is_parallel=True))
    own = find_owned(steps)
    gathered = {load.array for load in walk.loads(steps) if activity.has_array(load.array)}
    # The adjoint of an element that several iterations read would need atomics, and stores to one would race.
    if (gathered | _find_ordered_arrays(loop)) - own:
        return task
    return replace(task, steps=steps, own=own)


def _is_plain(loop: nodes.Loop) -> bool:
    """Return True if a loop hands nothing on, and runs as often as its bounds say."""
    return bool(loop.names) and loop.exit is None and not loop.carried


def _are_bounds(before: Sequence[Step], loop: nodes.Loop) -> bool:
    """Return True if the steps before a loop compute its bounds only."""
    inside = walk.find_read(loop.body)
    return all(isinstance(step, nodes.Assign) and step.name not in inside for step in before)


def _find_ordered_arrays(loop: nodes.Loop) -> set[str]:
    """Return the arrays that a loop changes, except by adding to what it never reads."""
    loaded = walk.find_loaded(loop.body)
    return {one.array for one in walk.stores(loop.body) if not is_atomic_addition(one) or one.array in loaded}
