"""The adjoint of an op: its kernels' tasks reversed, the last first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count

from ...analyses import Activity, concurrent_loop
from ...ir import RUN_IN_ORDER, NotCovered, nodes, types, walk
from .._bits import Part, check_bits
from ._assembly import Assembly, Turn, turns_of
from ._checkpoints import split_into_blocks
from ._dependences import Unchanged, find_written_once
from ._frame_reversal import Task
from ._parallelize import parallelize
from ._program import Program, Run, WithResults
from ._promises import NO_PROMISES, Promise
from ._records import handing_out
from ._reversible import Reversible, WantedGradients, adjoint_names, reversibles
from ._split import split
from ._ssa import number_steps, plain_steps
from ._task import KeptResults, reverse_task
from ._tasks import parts_of


def adjoint(
    kernels: Sequence[nodes.Kernel],
    active: Collection[str],
    outputs: Collection[str],
    made: Collection[str],
    *,
    detached: Collection[str] = (),
    private: Collection[str] = (),
    launches: Sequence[int] | None = None,
    unchanged: Collection[Unchanged] = (),
    promises: Mapping[str, Promise] = NO_PROMISES,
    has_checkpoints: bool = False,
    refuses_possible_races: bool = False,
    keeps_results: bool = True,
    keeps_functions: bool = False,
) -> Program:
    """What a backward pass does. A kernel is reversed once, however often it is launched.

    Args:
        kernels: those of an op, in the order of their first launches; arrays of one name are one array.
        active: inputs that want a gradient.
        outputs: arrays whose adjoint is given.
        made: outputs and scratch: they start at zero.
        detached: those of them that get no gradient and let none through.
        private: other arrays that start at zero, and that nobody kept.
        launches: for each launch the number of its kernel; left out, each kernel is launched once.
        unchanged: what `find_unchanged_after` gives for them.
        promises: what the spec says of the numbers in inputs, by name.
        has_checkpoints: whether loops run in blocks, so that their tapes are short.
        refuses_possible_races: whether a parallel loop has no gradient if its iterations may race; in any case it has
            none if they certainly do.
        keeps_results: whether to look for what a forward pass may keep of loops (`Program.results`).
        keeps_functions: whether a forward pass that keeps something of loops keeps values of functions too, where
            memory costs less than they do.

    Raises:
        NotCovered: a kernel does what cannot be reversed; the message says where.
    """
    parts = [parts_of(kernel) for kernel in kernels]
    arrays = {name: array for part in parts for name, array in part.kernel.arrays.items()}
    cells = frozenset(cell for part in parts for cell in part.cells) | frozenset(private)
    detached = {*detached, *(name for name, array in arrays.items() if not array.is_differentiable)}
    given = frozenset(outputs) - detached
    adjoints = adjoint_names([part.kernel for part in parts], arrays)
    order = range(len(kernels)) if launches is None else launches
    wanted = WantedGradients(active, given, detached, order)
    tasks = reversibles(parts, adjoints, wanted, promises, refuses_possible_races=refuses_possible_races)
    activities = wanted.activities([task.steps for task in tasks], [task.source for task in tasks])
    for task, activity in zip(tasks, activities, strict=True):
        _check_order(task, activity)
    check_bits(*(_part(task, activity) for task, activity in zip(tasks, activities, strict=True)))
    tasks = [parallelize(task, activity) for task, activity in zip(tasks, activities, strict=True)]
    numbers = count(1)
    tasks = [
        replace(task, steps=number_steps(split(task.steps, activity, task.names), numbers))
        for task, activity in zip(tasks, activities, strict=True)
    ]
    gradients = {name: adjoints[name] for name in arrays if any(one.has_array(name) for one in activities)}
    counts = Counter(order)
    repeated = {number for number, task in enumerate(tasks) if counts[task.source] > 1}
    once = find_written_once([task.steps for task in tasks], [task.own for task in tasks], active, repeated)
    reverses = []
    is_alone = keeps_results and len(tasks) == len(order) == 1 and not cells and tasks[0].is_as_written
    for number, (task, activity) in enumerate(zip(tasks, activities, strict=True)):
        own = {name: gradient for name, gradient in gradients.items() if activity.has_array(name)}
        known = Task(task.kernel, number, task.steps, task.own, activity, task.names, own, once)
        one = reverse_task(known, may_keep_results=is_alone, keeps_functions=keeps_functions)
        if has_checkpoints and one.taped:
            steps = split_into_blocks(task.steps, one.taped, activity, task.names, numbers)
            one = replace(reverse_task(replace(known, steps=steps)), taped=frozenset())
        reverses.append(one)
    turns = turns_of(tasks, reverses, order, unchanged)
    discarded = [gradients[name] for name in made if name in gradients and name not in active]

    def assemble(turns: list[Turn]) -> Program:
        return Assembly(turns, arrays, gradients, frozenset(made), cells, frozenset(outputs)).program(discarded)

    program = replace(assemble(turns), has_long_tapes=any(one.taped for one in reverses))
    _check_known(program, {name: reason for task in tasks for name, reason in task.unknown.items()})
    if kept := reverses[0].results if is_alone else None:
        turn = replace(turns[0], reverse=replace(reverses[0], kernel=kept.backward, reserve=None))
        program = replace(program, results=_with_results(program, assemble([turn]), kept))
    return program


def _with_results(plain: Program, backward: Program, kept: KeptResults) -> WithResults | None:
    """The passes of an op of one task that keep what its loops leave; None where that would need more of the call."""
    if not backward.reads <= plain.reads:
        return None
    made = {name: nodes.Array(name, kind, 1) for size in kept.sizes for name, kind, _ in size.arrays}
    arrays = {**backward.arrays, **made}
    backward = replace(backward, arrays=arrays, reads=backward.reads | frozenset(made))
    forward = Program((Run(kept.forward, 0, {}),), arrays, {}, frozenset(), frozenset(), ())
    return WithResults(forward, backward, kept.sizes, kept.iterations)


def _check_order(task: Reversible, activity: Activity) -> None:
    """Refuse a parallel loop whose result depends on the order of its iterations, where it has a gradient."""
    for array, reason in task.races.items():
        if activity.has_array(array):
            raise reason


def _check_known(program: Program, unknown: Mapping[str, NotCovered]) -> None:
    """Refuse a backward pass that needs what atomics returned to one iteration or another in the forward pass."""
    for kernel in dict.fromkeys(run.kernel for run in program.runs):
        for name in unknown.keys() & walk.find_touched(kernel.body):
            raise unknown[name]
        for loop in filter(None, map(concurrent_loop, kernel.body)):
            for one in handing_out(loop):
                words = f"the value that atomic_{one.operator} returned in a parallel loop"
                raise NotCovered(words, one.line, kernel.path, remedy=RUN_IN_ORDER)


def _part(task: Reversible, activity: Activity) -> Part:
    integers = {f"@{name}" for name, array in task.kernel.arrays.items() if not types.is_float(array.type)}

    def is_useful(name: str) -> bool:
        return name not in integers and activity.is_useful(name)

    return Part([*plain_steps(task.steps)], activity.varies, is_useful, task.kernel.path)
