"""What is reversed: the tasks of an op in form. One that takes maxima or minima has others in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...._lazy import lazy
from ....analyses import (
    Activity,
    Conflict,
    Verdict,
    along,
    describe_access,
    edges_of,
    find_conflicts_of_loop,
    find_disjoint_arrays,
    find_parallel_loop,
)
from ....ir import Names, NotCovered, Race, Type, nodes, types, walk
from ...extremes import Beside, extremes_in, extremes_of, write_in_order
from .._access import find_owned, order_atomics
from .._promises import Promise, find_promised_arrays
from .._ssa import Step
from .._tasks import Parts
from ._build_ssa import SsaBuilder
from ._prelude import Prelude, search_of


@dataclass(frozen=True)
class Reversible:
    """A task: its statements, as a run of the forward pass has them, and what is reversed for them, in form.

    Attributes:
        source: the number of the op's kernel that it is a part of.
        own: arrays without an element that two parallel iterations touch.
        prelude: what runs before its reverse.
        beside: memory that it works on, at 0 before it.
        part: its number among the tasks of the kernel.
        unknown: arrays that stand for what only the forward pass knew, with the refusal for who reads one.
        races: arrays in which parallel iterations certainly race, with the refusal where they have a gradient.
    """

    kernel: nodes.Kernel
    source: int
    statements: nodes.Block
    steps: tuple[Step, ...]
    names: Names
    own: frozenset[str] = frozenset()
    prelude: Prelude | None = None
    beside: tuple[Beside, ...] = ()
    part: int = 0
    unknown: Mapping[str, NotCovered] = field(default_factory=dict)
    races: Mapping[str, NotCovered] = field(default_factory=dict)

    @lazy
    def changed_arrays(self) -> frozenset[str]:
        """Return the arrays that the task changes."""
        return frozenset(walk.find_changed(self.statements))

    @property
    def is_as_written(self) -> bool:
        """Return True if the form of a parallel loop does what its statements do, random numbers included."""
        atomics = [
            sum(isinstance(one, nodes.Atomic) for one in stores)
            for stores in (walk.stores(self.steps), walk.stores(self.statements))
        ]
        # The form is then run as the forward pass, which keeps results of loops (`emit._task_reverse.KeptResults`).
        is_plain = not (self.prelude or self.beside or self.unknown or self.races)
        loop = find_parallel_loop(self.statements)
        is_plain &= loop is not None and not loop.block_size
        is_plain &= not any(self.kernel.arrays[name].is_of_blocks for name in walk.find_touched(self.statements))
        draws = any(isinstance(one, nodes.Draw) for one in walk.statements(self.statements))
        return is_plain and not draws and atomics[0] == atomics[1]


class WantedGradients(NamedTuple):
    """What a gradient is wanted of.

    Attributes:
        inputs: arrays that want a gradient.
        outputs: arrays that are given one.
        closed: arrays that let none through.
        launches: the numbers of the kernels in the order of their launches.
    """

    inputs: Collection[str]
    outputs: Collection[str]
    closed: Collection[str]
    launches: Sequence[int]

    def activities(self, tasks: Sequence[Sequence[Step]], sources: Sequence[int]) -> list[Activity]:
        """Compute what has a gradient in each task; `sources` are the numbers of their kernels.

        An array depends on the inputs from the first task on that gives it something that does, and reaches the outputs
        up to the last one from which it does; inside a task the order of statements does not count. What a task does to
        an array that is only later active need not be reversed, so what it reads need not be kept.
        """
        order = [number for kernel in self.launches for number, source in enumerate(sources) if source == kernel]
        shut = {f"@{name}" for name in self.closed}
        edges = [
            [edge for one in walk.statements(task) for edge in edges_of(one) if not shut & {*edge}] for task in tasks
        ]
        backwards = [[(end, start) for start, end in some] for some in edges]
        varied = along(order, edges, {f"@{name}" for name in self.inputs})
        useful = along(order[::-1], backwards, {f"@{name}" for name in self.outputs})
        return [Activity(one & other, one, other) for one, other in zip(varied, useful, strict=True)]


def adjoint_names(kernels: Sequence[nodes.Kernel], arrays: Iterable[str]) -> dict[str, str]:
    """Return a name for the adjoint of each array that no kernel has."""
    taken = {name for kernel in kernels for name in (*kernel.arrays, *kernel.arguments, *kernel.locals)}
    mark = "grad_"
    while any(f"{mark}{name}" in taken for name in arrays):
        mark += "of_"
    return {name: f"{mark}{name}" for name in arrays}


def reversibles(
    parts: Sequence[Parts],
    adjoints: Mapping[str, str],
    wanted: WantedGradients,
    promises: Mapping[str, Promise],
    *,
    refuses_possible_races: bool = False,
) -> list[Reversible]:
    """Return everything that is reversed, in the order of the forward pass. `adjoints` are their names, by array."""
    plain = [(source, part.kernel, statements) for source, part in enumerate(parts) for statements in part.tasks]
    places = [place for part in parts for place in range(len(part.tasks))]
    # Memory is found by name in the whole program, so that of two tasks must not have one name.
    marks = [f"_{number}" if len(plain) > 1 else "" for number in range(len(plain))]
    extremes = [{one.array for one in extremes_in(statements, _floats(kernel))} for _, kernel, statements in plain]
    own = [frozenset[str]()] * len(plain)
    if any(extremes):
        # What has a gradient is known of the form alone, so tasks are brought into form once to ask, and again with
        # those extremes expanded that have one.
        forms = [SsaBuilder(kernel, _names(kernel, adjoints)).task(statements) for _, kernel, statements in plain]
        own = [find_owned(form) for form in forms]
        activities = wanted.activities(forms, [source for source, _, _ in plain])
        extremes = [{*filter(one.has_array, names)} for one, names in zip(activities, extremes, strict=True)]
    tasks: list[Reversible] = []
    for number, (source, kernel, statements) in enumerate(plain):
        making = _Making(source, places[number], statements, adjoints, marks[number])
        tasks += making.expand_extremes(kernel, extremes[number], own[number])
    return [_put_in_order(task, promises, refuses_possible_races=refuses_possible_races) for task in tasks]


def _put_in_order(task: Reversible, promises: Mapping[str, Promise], *, refuses_possible_races: bool) -> Reversible:
    """Rewrite a task's atomics as loads and stores where order matters."""
    own, kernel = find_owned(task.steps) | find_promised_arrays(task.steps, promises), task.kernel
    races = find_races(kernel, task.statements, own, refuses_possible=refuses_possible_races)
    loop = find_parallel_loop(task.statements)

    def find_disjoint() -> frozenset[str]:
        return frozenset() if loop is None else find_disjoint_arrays(kernel, loop)

    steps, unknown = order_atomics(task.steps, kernel.arrays, own, find_disjoint, task.names, kernel.path, races)
    arrays = {name: nodes.Array(name, kind, 0) for name, kind in _types_of(steps, unknown).items()}
    kernel = replace(kernel, arrays={**kernel.arrays, **arrays})
    return replace(task, kernel=kernel, steps=steps, own=own, unknown=unknown, races=races)


@dataclass(frozen=True)
class _Making:
    """Brings a task into form."""

    source: int
    part: int
    statements: nodes.Block
    adjoints: Mapping[str, str]
    mark: str

    def expand_extremes(self, kernel: nodes.Kernel, arrays: Collection[str], own: Collection[str]) -> list[Reversible]:
        """Return the tasks that are reversed instead of this one: its maxima and minima of arrays become ordinary
        statements.

        Where the task does nothing else to an array, the winners are searched afterwards, also if the code is serial:
        the reverse of a serial update would have to keep each value that it overwrites.
        """
        if not arrays:
            return [self.form(kernel, self.statements)]
        # Memory is looked up by name in the whole program, so names of other kernels' arrays are taken.
        names = Names(_collect_names(kernel, self.adjoints) | self.adjoints.keys(), self.mark)
        searched = extremes_of(self.statements, arrays)
        prelude, settle, gather = None, (), self.statements
        if searched:
            prelude, expansion, kernel = search_of(self.statements, kernel, searched, names)
            settle, gather = expansion.settle, expansion.gather
        gather, beside = write_in_order(gather, kernel.arrays, {*arrays}.intersection(own) - searched, names)
        all_arrays = {**kernel.arrays, **{one.array.name: one.array for one in beside}}
        kernel = replace(kernel, arrays=all_arrays, locals={**kernel.locals, **names.types})
        tasks = [replace(self.form(kernel, one, "_settled"), statements=()) for one in settle]
        tasks.append(replace(self.form(kernel, gather), beside=beside))
        return [replace(one, prelude=prelude) for one in tasks]

    def form(self, kernel: nodes.Kernel, statements: nodes.Block, mark: str = "") -> Reversible:
        """Convert statements to SSA form, as a task that is reversed instead of this one."""
        names = _names(kernel, self.adjoints, f"{self.mark}{mark}")
        steps = SsaBuilder(kernel, names).task(statements)
        return Reversible(kernel, self.source, self.statements, steps, names, part=self.part)


def find_promised(kernel: nodes.Kernel, loop: nodes.For, promises: Mapping[str, Promise]) -> frozenset[str]:
    """Return the arrays without an element that two iterations of a parallel loop use, according to promises."""
    if not promises:
        return frozenset()
    return find_promised_arrays(SsaBuilder(kernel, _names(kernel, {})).task((loop,)), promises)


def _floats(kernel: nodes.Kernel) -> frozenset[str]:
    return frozenset(name for name, array in kernel.arrays.items() if types.is_float(array.type))


def _names(kernel: nodes.Kernel, adjoints: Mapping[str, str], mark: str = "") -> Names:
    return Names(_collect_names(kernel, adjoints), mark)


def _collect_names(kernel: nodes.Kernel, adjoints: Mapping[str, str]) -> set[str]:
    return {*kernel.arrays, *kernel.arguments, *kernel.locals, *adjoints.values()}


def _types_of(steps: Sequence[Step], arrays: Collection[str]) -> dict[str, Type]:
    return {load.array: load.type for load in walk.loads(steps) if load.array in arrays}


# Races ------------------------------------------------------------------------------------------
# What a parallel loop computes then depends on the order of its iterations, so it has no derivative.


def find_races(
    kernel: nodes.Kernel, statements: Sequence[nodes.Stmt], own: Collection[str], *, refuses_possible: bool
) -> dict[str, NotCovered]:
    """Return arrays of floats in which parallel iterations race, each with the refusal that names two accesses.

    Args:
        kernel: the kernel of the task.
        statements: the task.
        own: arrays without an element that two iterations touch.
        refuses_possible: whether possible races count too. If not, iterations that may race run in order, or the
            caller promises that they do not.
    """
    loop = find_parallel_loop(statements)
    if loop is None:
        return {}
    conflicts = find_conflicts_of_loop(kernel, loop, lambda _: own)
    chosen = [one for one in conflicts if refuses_possible or one.verdict is Verdict.CERTAIN]
    return {one.array: _refuse(one, kernel) for one in chosen if types.is_float(kernel.arrays[one.array].type)}


def _refuse(conflict: Conflict, kernel: nodes.Kernel) -> NotCovered:
    change, other = (describe_access(one, kernel) for one in (conflict.change, conflict.other))
    race = Race(change, conflict.change.line, other, conflict.other.line, conflict.other.is_load)
    words = f"`{other}`, which another iteration of the parallel loop changes"
    return NotCovered(words, conflict.change.line, kernel.path, race)
