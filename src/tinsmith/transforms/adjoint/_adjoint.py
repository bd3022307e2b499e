"""The adjoint of an op: its kernels' tasks reversed, the last first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ...source.ir import nodes, walk
from .._pruned import pruned
from .._scoped import scoped
from ._access import owned, sequential, written_once
from ._activity import activities_of
from ._form import Step, stores_in
from ._formed import Forming
from ._names import Names
from ._program import Action, Copy, Fresh, Program, Run
from ._split import split
from ._task import Given, Reversed, reversed_task
from ._tasks import parts_of


@dataclass(frozen=True)
class _Task:
    """A task: its statements as they were, and in form."""

    kernel: nodes.Kernel
    source: int
    statements: tuple[nodes.Stmt, ...]
    steps: tuple[Step, ...]
    own: frozenset[str]
    names: Names

    @property
    def changed(self) -> frozenset[str]:
        return frozenset(store.array for store in stores_in(self.steps))


def adjoint(
    kernels: Sequence[nodes.Kernel],
    active: Collection[str],
    outputs: Collection[str],
    made: Collection[str],
    *,
    detached: Collection[str] = (),
    private: Collection[str] = (),
    is_serial: bool = False,
) -> Program:
    """What a backward pass does.

    Args:
        kernels: those of an op, in order; arrays of one name are one array.
        active: inputs that want a gradient.
        outputs: arrays whose adjoint is given.
        made: outputs and scratch: they start at zero.
        detached: those of them that get no gradient and let none through.
        private: other arrays that start at zero, and that nobody kept.
        is_serial: use one thread, and no atomics.

    Raises:
        NotCovered: a kernel does what cannot be reversed; the message says where.
    """
    parts = [parts_of(kernel) for kernel in kernels]
    arrays = {name: array for part in parts for name, array in part.kernel.arrays.items()}
    cells = frozenset(cell for part in parts for cell in part.cells) | frozenset(private)
    statements = [(source, part.kernel, one) for source, part in enumerate(parts) for one in part.tasks]
    marks = [f"_{number}" if len(statements) > 1 else "" for number in range(len(statements))]
    tasks = [_formed(*one, arrays, mark) for one, mark in zip(statements, marks, strict=True)]
    given = frozenset(outputs) - frozenset(detached)
    activities = activities_of([task.steps for task in tasks], active, given, detached)
    tasks = [replace(t, steps=split(t.steps, a, t.names)) for t, a in zip(tasks, activities, strict=True)]
    gradients = {name: f"grad_{name}" for name in arrays if any(one.has_array(name) for one in activities)}
    once = written_once([task.steps for task in tasks])
    found = [
        reversed_task(
            Given(task.kernel, number, task.steps, task.own, activity, task.names, gradients, once, is_serial)
        )
        for number, (task, activity) in enumerate(zip(tasks, activities, strict=True))
    ]
    return _Assembly(tasks, found, arrays, gradients, frozenset(made), cells, frozenset(outputs)).program()


def _formed(
    source: int, kernel: nodes.Kernel, statements: tuple[nodes.Stmt, ...], arrays: dict[str, nodes.Array], mark: str
) -> _Task:
    taken = {*kernel.arrays, *kernel.arguments, *kernel.locals, *(f"grad_{name}" for name in arrays)}
    names = Names(taken, mark)
    steps = Forming(kernel, names).task(statements)
    own = owned(steps)
    steps = sequential(steps, dict(kernel.arrays), own, names, kernel.path)
    return _Task(kernel, source, statements, steps, own, names)


class _Assembly:
    """Puts reversed tasks in order, each on memory as it was when the task began."""

    def __init__(
        self,
        tasks: list[_Task],
        found: list[Reversed],
        arrays: dict[str, nodes.Array],
        gradients: dict[str, str],
        made: frozenset[str],
        cells: frozenset[str],
        outputs: frozenset[str],
    ) -> None:
        self.tasks = tasks
        self.found = found
        self.arrays = arrays
        self.gradients = gradients
        self.made = made | cells
        self.cells = cells
        self.outputs = outputs
        self.replayed: dict[tuple[int, str], str] = {}
        self.reads: set[str] = set()

    def program(self) -> Program:
        actions: list[Action] = []
        for number in reversed(range(len(self.tasks))):
            actions += self.reverse(number)
        actions = [*self.replay(), *actions]
        runs = [one for one in actions if isinstance(one, Run)]
        stored = {store.array for run in runs for store in walk.stores(run.kernel.body)}
        spoiled = frozenset(name for name in self.outputs if self.gradients.get(name) in stored)
        notes = tuple(note for one in self.found for note in one.notes)
        return Program(tuple(actions), self.arrays, self.gradients, frozenset(self.reads), spoiled, notes)

    def reverse(self, number: int) -> list[Action]:
        """The reverse of one task, with its memory."""
        found = self.found[number]
        if not any(True for _ in walk.stores(found.kernel.body)):
            return []
        actions: list[Action] = []
        if found.reserve is not None:
            runs = [one for one in (found.reserve.iterations, found.reserve.count) if isinstance(one, Run)]
            given = [self.run(run.kernel, number, found.counts_state, f"count_{number}", actions) for run in runs]
            renewed = {id(old): new for old, new in zip(runs, given, strict=True)}
            reserve = replace(
                found.reserve,
                iterations=renewed.get(id(found.reserve.iterations), found.reserve.iterations),
                count=renewed.get(id(found.reserve.count)),
            )
            actions.append(reserve)
        run = self.run(found.kernel, number, found.state, str(number), actions)
        return [*actions, run]

    def run(self, kernel: nodes.Kernel, number: int, state: Iterable[str], mark: str, actions: list[Action]) -> Run:
        """A launch on memory as it was when a task began; what it changes, it changes in copies."""
        memory: dict[str, str] = {}
        touched = {load.array for load in walk.loads(kernel.body)} | {one.array for one in walk.stores(kernel.body)}
        for name in kernel.arrays:
            if name not in touched:
                continue
            if name in state:
                memory[name] = f"{name}@{mark}"
                actions.append(self.begun(name, number, memory[name]))
            elif name in self.made:
                memory[name] = self.at(name, number)
            elif name in self.arrays and not self.arrays[name].label:
                self.reads.add(name)
        return Run(kernel, self.tasks[number].source, memory)

    def writers(self, name: str) -> list[int]:
        return [number for number, task in enumerate(self.tasks) if name in task.changed]

    def begun(self, name: str, number: int, copy: str) -> Action:
        """A copy of an array as it was before a task."""
        if not any(writer < number for writer in self.writers(name)):
            return Fresh(copy, name)
        return Copy(copy, self.at(name, number))

    def at(self, name: str, number: int) -> str:
        """Memory with an array's values before a task: those of the end where nobody changes them any more."""
        writers = self.writers(name)
        if name not in self.cells and all(writer < number for writer in writers):
            self.reads.add(name)
            return name
        return self.replayed.setdefault((number, name), f"{name}@before_{number}")

    def replay(self) -> list[Action]:
        """The forward pass run again, up to the last values that something needs from the middle of it."""
        if not self.replayed:
            return []
        last = max(number for number, _ in self.replayed)
        needed = self.needed(last)
        actions: list[Action] = [Fresh(f"{name}@replay", name) for name in sorted(needed)]
        for number in range(last + 1):
            for (place, name), memory in self.replayed.items():
                if place == number:
                    actions.append(Copy(memory, f"{name}@replay"))
            if number < last:
                actions += self.again(number, needed)
        return actions

    def needed(self, last: int) -> set[str]:
        """Arrays that must be run again for those that are replayed."""
        found = {name for _, name in self.replayed}
        while True:
            more = set(found)
            for task in self.tasks[:last]:
                body = pruned(task.statements, private=self.made - found)
                more |= {load.array for load in walk.loads(body)} & self.made
            if more == found:
                return found
            found = more

    def again(self, number: int, needed: set[str]) -> list[Action]:
        """One task of the forward pass, as far as it is needed."""
        task = self.tasks[number]
        body = scoped(pruned(task.statements, private=self.made - needed), task.kernel.locals)
        if not body:
            return []
        used = {one.array for one in walk.stores(body)} | {load.array for load in walk.loads(body)}
        used |= walk.sized(body)
        arrays = {name: array for name, array in task.kernel.arrays.items() if name in used}
        loaded = {load.array for load in walk.loads(body)} - self.made
        self.reads |= {name for name in loaded if not self.arrays[name].label}
        kernel = replace(task.kernel, name=f"{task.kernel.name}_again_{number}", arrays=arrays, body=body)
        return [Run(kernel, task.source, {name: f"{name}@replay" for name in arrays if name in needed})]
