"""The adjoint of an op: its kernels' tasks reversed, the last first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ...source.ir import nodes, walk
from .._bits import Part, check_bits
from ..polish import pruned, scoped
from ._activity import Activity, activities_of
from ._form import plain_steps
from ._once import written_once
from ._program import Action, Copy, Fresh, Program, Reserve, Run
from ._reversible import Reversible, Wanted, adjoint_names, reversibles
from ._split import split
from ._task import Given, Reversed, reversed_task
from ._tasks import parts_of
from ._unordered import unordered


def adjoint(
    kernels: Sequence[nodes.Kernel],
    active: Collection[str],
    outputs: Collection[str],
    made: Collection[str],
    *,
    detached: Collection[str] = (),
    private: Collection[str] = (),
) -> Program:
    """What a backward pass does.

    Args:
        kernels: those of an op, in order; arrays of one name are one array.
        active: inputs that want a gradient.
        outputs: arrays whose adjoint is given.
        made: outputs and scratch: they start at zero.
        detached: those of them that get no gradient and let none through.
        private: other arrays that start at zero, and that nobody kept.

    Raises:
        NotCovered: a kernel does what cannot be reversed; the message says where.
    """
    parts = [parts_of(kernel) for kernel in kernels]
    arrays = {name: array for part in parts for name, array in part.kernel.arrays.items()}
    cells = frozenset(cell for part in parts for cell in part.cells) | frozenset(private)
    given = frozenset(outputs) - frozenset(detached)
    adjoints = adjoint_names([part.kernel for part in parts], arrays)
    tasks = reversibles(parts, adjoints, Wanted(active, given, detached))
    activities = activities_of([task.steps for task in tasks], active, given, detached)
    check_bits(*(_part(task, activity) for task, activity in zip(tasks, activities, strict=True)))
    tasks = [unordered(task, activity) for task, activity in zip(tasks, activities, strict=True)]
    tasks = [replace(t, steps=split(t.steps, a, t.names)) for t, a in zip(tasks, activities, strict=True)]
    gradients = {name: adjoints[name] for name in arrays if any(one.has_array(name) for one in activities)}
    once = written_once([task.steps for task in tasks], active)
    found = [
        reversed_task(Given(task.kernel, number, task.steps, task.own, activity, task.names, gradients, once))
        for number, (task, activity) in enumerate(zip(tasks, activities, strict=True))
    ]
    return _Assembly(tasks, found, arrays, gradients, frozenset(made), cells, frozenset(outputs)).program()


def _part(task: Reversible, activity: Activity) -> Part:
    return Part([*plain_steps(task.steps)], activity.varies, task.kernel.path)


class _Assembly:
    """Puts reversed tasks in order, each on memory as it was when the task began."""

    def __init__(
        self,
        tasks: list[Reversible],
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
        self.beside: dict[str, str] = {}

    def program(self) -> Program:
        actions: list[Action] = []
        for number in reversed(range(len(self.tasks))):
            actions += self.reverse(number)
        actions = [*self.replay(), *actions]
        runs = [one for one in actions if isinstance(one, Run)]
        stored = {store.array for run in runs for store in walk.stores(run.kernel.body)}
        spoiled = frozenset(name for name in self.outputs if self.gradients.get(name) in stored)
        notes = tuple(note for one in self.found for note in one.notes)
        notes += tuple(one.extremes.note for one in self.tasks if one.extremes and one.extremes.note)
        return Program(tuple(actions), self.arrays, self.gradients, frozenset(self.reads), spoiled, notes)

    def reverse(self, number: int) -> list[Action]:
        """The reverse of one task, with its memory."""
        found, task = self.found[number], self.tasks[number]
        if task.settles and not self.has_changed(task.settles, number):
            return []
        if not any(True for _ in walk.stores(found.kernel.body)):
            return self.apart(number) if self.settles_later(task, number) else []
        actions = self.apart(number)
        if found.reserve is not None:
            actions.append(self.reserved(found.reserve, number, f"count_{number}", actions))
        run = self.run(found.kernel, number, found.state, str(number), actions)
        return [*actions, run]

    def settles_later(self, task: Reversible, number: int) -> bool:
        """Whether what stood where a task takes maxima has to know who won, though no candidate does."""
        extremes = task.extremes
        return extremes is not None and any(self.has_changed(one.array.name, number) for one in extremes.arrays)

    def reserved(self, reserve: Reserve, number: int, mark: str, actions: list[Action]) -> Reserve:
        """Room for tapes; the kernels that say how much are told their memory."""

        def given(run: Run) -> Run:
            stored = {store.array for store in walk.stores(run.kernel.body)}
            state = stored & walk.reads(run.kernel.body) & self.tasks[number].changed
            return self.run(run.kernel, number, state, mark, actions)

        iterations = given(reserve.iterations) if isinstance(reserve.iterations, Run) else reserve.iterations
        return replace(reserve, iterations=iterations, count=None if reserve.count is None else given(reserve.count))

    def apart(self, number: int) -> list[Action]:
        """Where a task takes maxima or minima: who won, and how many did."""
        extremes = self.tasks[number].extremes
        if extremes is None:
            return []
        actions: list[Action] = []
        for one in extremes.arrays:
            name = one.array.name
            self.beside |= {beside: f"{beside}@{number}" for beside in (one.before, one.winner, one.ties)}
            actions.append(self.begun(name, number, self.beside[one.winner]))
            actions.append(Fresh(self.beside[one.ties], name))
            if self.has_changed(name, number):
                self.beside[one.before] = self.at(name, number)
            else:
                actions.append(Fresh(self.beside[one.before], name))
        if extremes.reserve is not None:
            actions.append(self.reserved(extremes.reserve, number, f"slots_{number}", actions))
        for kernel, word in ((extremes.find, "winners"), (extremes.count, "ties")):
            state = walk.reads(kernel.body) & self.tasks[number].changed
            actions.append(self.run(kernel, number, state, f"{word}_{number}", actions))
        return actions

    def run(self, kernel: nodes.Kernel, number: int, state: Iterable[str], mark: str, actions: list[Action]) -> Run:
        """A launch on memory as it was when a task began; what it changes, it changes in copies."""
        memory: dict[str, str] = {}
        touched = walk.touched(kernel.body)
        for name in kernel.arrays:
            if name not in touched:
                continue
            if name in self.beside:
                memory[name] = self.beside[name]
            elif name in state:
                memory[name] = f"{name}@{mark}"
                actions.append(self.begun(name, number, memory[name]))
            elif name in self.made:
                is_settled = name in self.found[number].settled
                memory[name] = self.at(name, number + 1 if is_settled else number)
            elif name in self.arrays and not self.arrays[name].label:
                self.reads.add(name)
        kept = {store.array for store in walk.stores(kernel.body)} & self.reads
        assert all(memory.get(name, name) != name for name in kept), f"{kernel.name} changes what the forward pass left"
        return Run(kernel, self.tasks[number].source, memory)

    def writers(self, name: str) -> list[int]:
        return [number for number, task in enumerate(self.tasks) if name in task.changed]

    def has_changed(self, name: str, number: int) -> bool:
        """Whether an array has been changed when a task begins."""
        return any(writer < number for writer in self.writers(name))

    def begun(self, name: str, number: int, copy: str) -> Action:
        """A copy of an array as it was before a task."""
        if not self.has_changed(name, number):
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
                more |= walk.reads(body) & self.made
            if more == found:
                return found
            found = more

    def again(self, number: int, needed: set[str]) -> list[Action]:
        """One task of the forward pass, as far as it is needed."""
        task = self.tasks[number]
        body = scoped(pruned(task.statements, private=self.made - needed), task.kernel.locals)
        if not any(True for _ in walk.stores(body)):
            return []
        used = walk.touched(body) | walk.sized(body)
        arrays = {name: array for name, array in task.kernel.arrays.items() if name in used}
        read = walk.reads(body) - self.made
        self.reads |= {name for name in read if not self.arrays[name].label}
        exprs = (expr for one in walk.statements(body) for expr in walk.expressions(one))
        asked = {part.name for expr in exprs for part in walk.parts(expr) if isinstance(part, nodes.Argument)}
        arguments = {name: kind for name, kind in task.kernel.arguments.items() if name in asked}
        name = f"{task.kernel.name}_again_{number}"
        kernel = replace(task.kernel, name=name, arrays=arrays, arguments=arguments, body=body)
        return [Run(kernel, task.source, {name: f"{name}@replay" for name in arrays if name in needed})]
