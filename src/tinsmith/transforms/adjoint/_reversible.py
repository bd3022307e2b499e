"""What is reversed: the tasks of an op in form. One that takes maxima or minima has two in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...source.ir import NotCovered, nodes, types, walk
from .._names import Names
from ..analysis import Activity
from ..extremes import extremes_of
from ._access import owned, sequential
from ._activity import activities_of
from ._disjoint import find_disjoint_arrays
from ._form import Step, loads_in
from ._formed import Forming
from ._tasks import Parts
from ._winners import Extremes, taken_apart

Block = tuple[nodes.Stmt, ...]


@dataclass(frozen=True)
class Reversible:
    """A task: its statements, as a run of the forward pass has them, and what is reversed for them, in form.

    Attributes:
        source: the number of the op's kernel that it is a part of.
        own: arrays no element of which two parallel iterations touch.
        extremes: what goes before the reverse of a task that takes maxima or minima.
        settles: the array that it gives back what a maximum or minimum has left to it, where it is such a task.
        part: its number among the tasks of the kernel.
        unknown: arrays that stand for what only the forward pass knew, with the refusal for who reads one.
    """

    kernel: nodes.Kernel
    source: int
    statements: Block
    steps: tuple[Step, ...]
    own: frozenset[str]
    names: Names
    extremes: Extremes | None = None
    settles: str = ""
    part: int = 0
    unknown: Mapping[str, NotCovered] = field(default_factory=dict)

    @property
    def changed(self) -> frozenset[str]:
        return frozenset(store.array for store in walk.stores(self.statements))


class Wanted(NamedTuple):
    """What a gradient is wanted of, and the numbers of the kernels in the order of their launches."""

    inputs: Collection[str]
    outputs: Collection[str]
    closed: Collection[str]
    launches: Sequence[int]

    def activities(self, tasks: Sequence[Sequence[Step]], sources: Sequence[int]) -> list[Activity]:
        """What has a gradient in each task; `sources` are the numbers of their kernels."""
        order = [number for kernel in self.launches for number, source in enumerate(sources) if source == kernel]
        return activities_of(tasks, self.inputs, self.outputs, self.closed, order)


def adjoint_names(kernels: Sequence[nodes.Kernel], arrays: Iterable[str]) -> dict[str, str]:
    """What the adjoint of each array is called: a name that no kernel has."""
    taken = {name for kernel in kernels for name in (*kernel.arrays, *kernel.arguments, *kernel.locals)}
    mark = "grad_"
    while any(f"{mark}{name}" in taken for name in arrays):
        mark += "of_"
    return {name: f"{mark}{name}" for name in arrays}


def reversibles(parts: Sequence[Parts], adjoints: Mapping[str, str], wanted: Wanted) -> list[Reversible]:
    """Everything that is reversed, in the order of the forward pass. `adjoints` are their names, by array."""
    plain = [(source, part.kernel, statements) for source, part in enumerate(parts) for statements in part.tasks]
    places = [place for part in parts for place in range(len(part.tasks))]
    marks = [f"_{number}" if len(plain) > 1 else "" for number in range(len(plain))]
    extremes = [extremes_of(statements, _floats(kernel)) for _, kernel, statements in plain]
    if any(extremes):
        forms = [Forming(kernel, _names(kernel, adjoints)).task(statements) for _, kernel, statements in plain]
        activities = wanted.activities(forms, [source for source, _, _ in plain])
        extremes = [frozenset(filter(one.has_array, names)) for one, names in zip(activities, extremes, strict=True)]
    found: list[Reversible] = []
    for (source, kernel, statements), names, mark, place in zip(plain, extremes, marks, places, strict=True):
        if not names:
            found.append(replace(_formed(source, kernel, statements, adjoints, mark), part=place))
            continue
        apart = taken_apart(statements, kernel, names, _names(kernel, adjoints, mark))
        for one, settling in zip(apart.arrays, apart.settling, strict=True):
            task = _formed(source, apart.kernel, settling, adjoints, f"{mark}_settled")
            found.append(replace(task, statements=(), settles=one.array.name, part=place))
        gathering = _formed(source, apart.kernel, apart.gathering, adjoints, mark)
        found.append(replace(gathering, statements=statements, extremes=apart, part=place))
    return found


def _floats(kernel: nodes.Kernel) -> frozenset[str]:
    return frozenset(name for name, array in kernel.arrays.items() if types.is_float(array.type))


def _names(kernel: nodes.Kernel, adjoints: Mapping[str, str], mark: str = "") -> Names:
    return Names({*kernel.arrays, *kernel.arguments, *kernel.locals, *adjoints.values()}, mark)


def _formed(source: int, kernel: nodes.Kernel, statements: Block, adjoints: Mapping[str, str], mark: str) -> Reversible:
    names = _names(kernel, adjoints, mark)
    steps = Forming(kernel, names).task(statements)
    own = owned(steps) | find_disjoint_arrays(steps)
    steps, unknown = sequential(steps, kernel.arrays, own, names, kernel.path)
    arrays = {name: nodes.Array(name, kind, 0) for name, kind in _types_of(steps, unknown).items()}
    kernel = replace(kernel, arrays={**kernel.arrays, **arrays})
    return Reversible(kernel, source, statements, steps, own, names, unknown=unknown)


def _types_of(steps: Sequence[Step], arrays: Collection[str]) -> dict[str, str]:
    return {load.array: load.type for load in loads_in(steps) if load.array in arrays}
