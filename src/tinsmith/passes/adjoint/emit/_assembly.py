"""The assembly of a backward pass: reversed tasks in order, each on memory as it was when the task began.

    for i in range(n): y[i] = x[i] * 2             for j in range(n): grad_y[j] += 2 * y[j] * grad_z[j]
    for j in range(n): z[j] = y[j] * y[j]    ->    for i in range(n): grad_x[i] += 2 * grad_y[i]

What a task needs and the forward pass has overwritten since is made again: the forward pass runs once more, as far as
that takes. How a task itself is reversed is in `_task_reverse`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from ....ir import nodes, walk
from ...polish import declare_locals, eliminate_dead_code
from .._dependences import Unchanged
from .._program import Action, AdjointProgram, Copy, Fresh, Reserve, Run
from .._tasks import kernel_of
from ..normalize import Reversible
from ._task_reverse import TaskReverse


@dataclass(frozen=True)
class Turn:
    """One task of one launch.

    Attributes:
        number: of the task among those of the kernels; launches of one kernel share it.
        launch: the place of the launch.
        stable: arrays whose values, as this turn reads them, no later turn changes.
        reverse: the task's reverse.
        final: those that the turn does not change either: it reads what they hold in the end.
    """

    number: int
    launch: int
    task: Reversible
    reverse: TaskReverse
    stable: frozenset[str]
    final: frozenset[str]


def turns_of(
    tasks: Sequence[Reversible],
    reverses: Sequence[TaskReverse],
    order: Sequence[int],
    unchanged: Collection[Unchanged],
) -> list[Turn]:
    """List the turns (runs of a task in a launch) of the forward pass in the order of execution."""
    kept: dict[tuple[int, int], set[str]] = {}
    final: dict[tuple[int, int], set[str]] = {}
    for launch, part, array, is_final in unchanged:
        kept.setdefault((launch, part), set()).add(array)
        final.setdefault((launch, part), set()).update((array,) if is_final else ())
    own: dict[int, list[int]] = {}
    for number, task in enumerate(tasks):
        own.setdefault(task.source, []).append(number)
    return [
        Turn(
            number,
            launch,
            tasks[number],
            reverses[number],
            *(frozenset(one.get((launch, part), ())) for one in (kept, final)),
        )
        for launch, kernel in enumerate(order)
        for number in own.get(kernel, ())
        for part in (tasks[number].part,)
    ]


class Assembly:
    """Puts reversed tasks in order, each on memory as it was when the task began."""

    def __init__(
        self,
        turns: list[Turn],
        arrays: dict[str, nodes.Array],
        gradients: dict[str, str],
        made: frozenset[str],
        cells: frozenset[str],
        outputs: frozenset[str],
    ) -> None:
        self.turns = turns
        self.writers: dict[str, list[int]] = {}
        for place, turn in enumerate(turns):
            for name in turn.task.changed_arrays:
                self.writers.setdefault(name, []).append(place)
        self.agains: dict[int, nodes.Kernel | None] = {}
        # By task, not by turn: one kernel reruns a task in all its
        # turns, so it can leave out only what holds in each.
        self.final: dict[int, frozenset[str]] = {}
        self.known_uses: dict[nodes.Kernel, tuple[set[str], set[str]]] = {}
        self.arrays = arrays
        self.gradients = gradients
        self.allocations = made | cells
        self.cells = cells
        self.outputs = outputs
        self.replayed: dict[tuple[int, str], str] = {}
        self.reads: set[str] = set()
        self.prepared: set[tuple[int, int, int]] = set()

    def program(self, discarded: Collection[str]) -> AdjointProgram:
        """Return the backward pass. Nobody reads the `discarded` adjoints after it."""
        actions: list[Action] = []
        # Turns ask for the memory that they need as they are reversed, so the replay is written last, and runs first.
        for place in reversed(range(len(self.turns))):
            actions += self.reverse(place)
        actions = _without_last_stores([*self.replay(), *actions], discarded)
        kernels = {one.kernel for one in actions if isinstance(one, Run)}
        stored = set[str]().union(*(walk.find_changed(kernel.body) for kernel in kernels))
        spoiled = frozenset(name for name in self.outputs if self.gradients.get(name) in stored)
        tasks = {turn.number: turn for turn in self.turns}.values()
        decisions = tuple(decision for one in tasks for decision in one.reverse.decisions)
        notes = tuple(note for one in tasks for note in one.reverse.notes)
        notes += tuple(
            dict.fromkeys(one.task.prelude.note for one in tasks if one.task.prelude and one.task.prelude.note)
        )
        return AdjointProgram(
            tuple(actions), self.arrays, self.gradients, frozenset(self.reads), spoiled, decisions, notes
        )

    def reverse(self, place: int) -> list[Action]:
        """Return the actions that run the reverse of a turn, and that allocate the memory that it needs."""
        turn = self.turns[place]
        kernel_reverse = turn.reverse
        # A reverse that changes no memory adds to no adjoint.
        if not self.find_uses(kernel_reverse.kernel)[0]:
            return []
        actions = self.prepare(place)
        if kernel_reverse.reserve is not None:
            actions.append(self.assign_memory(kernel_reverse.reserve, place, f"count_{turn.number}", actions))
        run = self.run(kernel_reverse.kernel, place, kernel_reverse.state, str(turn.number), actions)
        return [*actions, run]

    def assign_memory(self, reserve: Reserve, place: int, mark: str, actions: list[Action]) -> Reserve:
        """Return the room for tapes, with memory for the kernels that count how much is needed."""
        turn = self.turns[place]

        def assign(run: Run) -> Run:
            stored = walk.find_changed(run.kernel.body)
            state = stored & walk.reads(run.kernel.body) & turn.task.changed_arrays
            return self.run(run.kernel, place, state, mark, actions)

        iterations = assign(reserve.iterations) if isinstance(reserve.iterations, Run) else reserve.iterations
        count = None if reserve.count is None else assign(reserve.count)
        return replace(reserve, iterations=iterations, count=count, source=turn.launch)

    def prepare(self, place: int) -> list[Action]:
        """Return the actions that run the prelude of a task, such as the search for the winners of a maximum.

        The tasks that one task of a launch was split into share a prelude: only the first of them gets the actions.

        Args:
            place: the position of the task's turn in the order of execution.
        """
        turn = self.turns[place]
        prelude, key = turn.task.prelude, (turn.launch, turn.task.source, turn.task.part)
        if prelude is None or key in self.prepared:
            return []
        self.prepared.add(key)
        actions: list[Action] = [Fresh(one.array.name, one.like, one.array.type) for one in prelude.beside]
        if prelude.reserve is not None:
            actions.append(self.assign_memory(prelude.reserve, place, f"slots_{turn.number}", actions))
        return [*actions, self.run(prelude.kernel, place, (), f"winners_{turn.number}", actions)]

    def run(self, kernel: nodes.Kernel, place: int, state: Iterable[str], mark: str, actions: list[Action]) -> Run:
        """Build a launch on memory as it was when a turn began, and append to `actions` what makes its copies."""
        turn = self.turns[place]
        memory: dict[str, str] = {}
        own = {one.array.name: one for one in turn.task.beside}
        stored, touched = self.find_uses(kernel)
        for name in kernel.arrays:
            # Of an array whose size alone is asked, any memory of that shape will do, and no copy is needed.
            if name not in touched:
                continue
            if name in own:
                actions.append(Fresh(name, own[name].like, own[name].array.type))
            elif name in state:
                memory[name] = f"{name}@{mark}"
                actions.append(self.copy_initial(name, place, memory[name]))
            elif name in self.allocations:
                # A settled array is read as the turn left it, so the memory after the turn serves.
                is_settled = name in turn.reverse.settled
                is_kept = name in turn.stable and (is_settled or name not in turn.task.changed_arrays)
                memory[name] = self.at(name, place + 1 if is_settled else place, is_kept=is_kept)
            elif name in self.arrays and not self.arrays[name].label:
                self.reads.add(name)
        # A call may be differentiated twice (`retain_graph`), so what autograd saved must stay as it is.
        kept = stored & self.reads
        assert all(memory.get(name, name) != name for name in kept), (
            f"{kernel.name} must not change values that the forward pass saved"
        )
        return Run(kernel, turn.launch, memory)

    def find_uses(self, kernel: nodes.Kernel) -> tuple[set[str], set[str]]:
        """Return the arrays that a kernel changes, and all whose elements it uses."""
        # Each launch of a kernel asks, and there may be thousands.
        uses = self.known_uses.get(kernel)
        if uses is None:
            stored = walk.find_changed(kernel.body)
            uses = self.known_uses[kernel] = stored, walk.find_touched(kernel.body)
        return uses

    def has_changed(self, name: str, place: int) -> bool:
        """Return True if an earlier turn than that at position `place` changes the array."""
        writers = self.writers.get(name, ())
        return bool(writers) and writers[0] < place

    def copy_initial(self, name: str, place: int, copy: str) -> Action:
        """Return the action that makes a copy of an array with the values that it had before a turn."""
        if not self.has_changed(name, place):
            # Outputs and scratch start at zero, so before the first change there is nothing to copy.
            return Fresh(copy, name)
        return Copy(copy, self.at(name, place))

    def at(self, name: str, place: int, *, is_kept: bool = False) -> str:
        """Return the memory with an array's values before a turn.

        That is the array as the forward pass left it, if nobody changes it from there on. `is_kept` says that nobody
        changes the elements that are read.
        """
        writers = self.writers.get(name, [])
        if name not in self.cells and (is_kept or not writers or writers[-1] < place):
            self.reads.add(name)
            return name
        before = bisect_left(writers, place)
        # The array has not changed since its last writer, so turns that read it in between share one copy.
        since = writers[before - 1] + 1 if before else 0
        return self.replayed.setdefault((since, name), f"{name}@before_{since}")

    def replay(self) -> list[Action]:
        """Write a replay of the forward pass, up to the last turn before which some turn needs an array's values."""
        begun = [Fresh(memory, name) for (place, name), memory in self.replayed.items() if not place]
        replayed = {key: memory for key, memory in self.replayed.items() if key[0]}
        if not replayed:
            return [*begun]
        last = max(place for place, _ in replayed)
        # For each task, the arrays whose final values it reads in all of its turns before the last one.
        for turn in self.turns[:last]:
            self.final[turn.number] = self.final.get(turn.number, self.allocations - self.cells) & turn.final
        needed = self.find_needed(last, {name for _, name in replayed})
        memory = {name: f"{name}@replay" for name in sorted(needed)}
        # Nothing runs after the last copies are taken, so the replay itself may work on that memory.
        memory |= {name: kept for (place, name), kept in replayed.items() if place == last}
        copies: dict[int, list[Action]] = {}
        for (place, name), kept in replayed.items():
            if place < last:
                copies.setdefault(place, []).append(Copy(kept, memory[name]))
        actions: list[Action] = [*begun, *(Fresh(kept, name) for name, kept in memory.items())]
        for place in range(last):
            actions += [*copies.get(place, []), *self.again(self.turns[place], memory)]
        return actions

    def find_needed(self, last: int, arrays: set[str]) -> set[str]:
        """Return the arrays that the replay of turns before `last` must compute to obtain `arrays`, these included."""
        tasks = {turn.number: turn.task for turn in self.turns[:last]}
        while True:
            # Each array that a task reads for a needed one is needed as well. The set only grows, so this ends.
            more = set(arrays)
            for number, task in tasks.items():
                body = self.find_wanted(task, number, arrays)
                more |= walk.reads(body) & self.allocations - self.final[number]
            if more == arrays:
                return arrays
            arrays = more

    def find_wanted(self, task: Reversible, number: int, needed: AbstractSet[str]) -> nodes.Block:
        """Return those statements of a task that compute the arrays `needed`: the rest is eliminated as dead code."""
        # What a task reads at its end values comes from the forward pass, so in the replay its stores have no reader.
        unread = self.final[number] - needed
        return eliminate_dead_code(task.statements, private=self.allocations - needed - unread, unread=unread)

    def again(self, turn: Turn, memory: Mapping[str, str]) -> list[Action]:
        """Return the actions that run a turn of the replay again: only the statements that compute needed arrays."""
        if turn.number not in self.agains:
            self.agains[turn.number] = self.rerun(turn.task, turn.number, memory.keys())
        kernel = self.agains[turn.number]
        if kernel is None:
            return []
        return [Run(kernel, turn.launch, {name: memory[name] for name in kernel.arrays if name in memory})]

    def rerun(self, task: Reversible, number: int, needed: AbstractSet[str]) -> nodes.Kernel | None:
        """Build the kernel that runs a task of the forward pass again; None if nothing of it is needed."""
        body = declare_locals(self.find_wanted(task, number, needed), task.kernel.locals)
        if not walk.find_changed(body):
            return None
        kept = self.allocations - self.final[number] | needed
        self.reads |= {name for name in walk.reads(body) - kept if not self.arrays[name].label}
        return kernel_of(
            task.kernel, f"{task.kernel.name}_again_{number}", body, task.kernel.arrays, task.kernel.arguments
        )


def _without_last_stores(actions: Sequence[Action], arrays: Collection[str]) -> list[Action]:
    """Return the actions without the last stores to arrays, after which nobody reads them.

    Such a store clears an adjoint. For an output, that would force a copy of the gradient that torch passes in.

    An earlier launch keeps its stores, which a later one may read; so does a kernel that is launched more than once.
    """
    left = list(actions)
    places: dict[nodes.Kernel, list[int]] = {}
    for place, one in enumerate(actions):
        if isinstance(one, Run):
            places.setdefault(one.kernel, []).append(place)
    touched = {kernel: walk.find_touched(kernel.body) for kernel in places}
    # One elimination for all arrays of a kernel: a kernel of a simulation has dozens of adjoints.
    unread: dict[int, list[str]] = {}
    for array in arrays:
        users = [where for kernel, where in places.items() if array in touched[kernel]]
        last = max(users, key=lambda where: where[-1], default=[])
        if len(last) == 1:
            unread.setdefault(last[0], []).append(array)
    for place, names in unread.items():
        run = left[place]
        assert isinstance(run, Run)
        body = eliminate_dead_code(run.kernel.body, private=names)
        if body != run.kernel.body:
            body = declare_locals(body, run.kernel.locals)
            left[place] = replace(run, kernel=replace(run.kernel, body=body))
    return left
