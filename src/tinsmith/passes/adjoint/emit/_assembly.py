"""The assembly of a backward pass: reversed tasks in order, each on memory as it was when the task began.

What a task needs and the forward pass has overwritten since is made again: the forward pass runs once more, as far as
that takes. How a task itself is reversed is in `_task`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from ....ir import nodes, walk
from ...polish import declare_locals, eliminate_dead_code
from .._dependences import Unchanged
from .._program import Action, Copy, Fresh, Program, Reserve, Run
from .._tasks import kernel_of
from ..normalize import Reversible
from ._task_reverse import TaskReverse


@dataclass(frozen=True)
class Turn:
    """One task of one launch.

    Attributes:
        number: of the task among those of the kernels; launches of one kernel share it.
        launch: the place of the launch.
        stable: arrays of which no later turn changes what this one reads.
        reverse: the task's reverse.
        final: those of which the turn does not change it either: it reads what they hold in the end.
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
    """Everything that is reversed, launch by launch."""
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

    def program(self, discarded: Collection[str]) -> Program:
        """The backward pass. Of `discarded` adjoints nobody wants to know what they are in the end."""
        actions: list[Action] = []
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
        return Program(tuple(actions), self.arrays, self.gradients, frozenset(self.reads), spoiled, decisions, notes)

    def reverse(self, place: int) -> list[Action]:
        """The reverse of one turn, with its memory."""
        turn = self.turns[place]
        kernel_reverse = turn.reverse
        if not self.find_uses(kernel_reverse.kernel)[0]:
            return []
        actions = self.prepare(place)
        if kernel_reverse.reserve is not None:
            actions.append(self.assign_memory(kernel_reverse.reserve, place, f"count_{turn.number}", actions))
        run = self.run(kernel_reverse.kernel, place, kernel_reverse.state, str(turn.number), actions)
        return [*actions, run]

    def assign_memory(self, reserve: Reserve, place: int, mark: str, actions: list[Action]) -> Reserve:
        """Room for tapes; the kernels that say how much are given their memory."""
        turn = self.turns[place]

        def assign(run: Run) -> Run:
            stored = walk.find_changed(run.kernel.body)
            state = stored & walk.reads(run.kernel.body) & turn.task.changed_arrays
            return self.run(run.kernel, place, state, mark, actions)

        iterations = assign(reserve.iterations) if isinstance(reserve.iterations, Run) else reserve.iterations
        count = None if reserve.count is None else assign(reserve.count)
        return replace(reserve, iterations=iterations, count=count, source=turn.launch)

    def prepare(self, place: int) -> list[Action]:
        """The prelude of a turn; once for all turns of a task."""
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
        """A launch on memory as it was when a turn began; what it changes, it changes in copies."""
        turn = self.turns[place]
        memory: dict[str, str] = {}
        own = {one.array.name: one for one in turn.task.beside}
        stored, touched = self.find_uses(kernel)
        for name in kernel.arrays:
            if name not in touched:
                continue
            if name in own:
                actions.append(Fresh(name, own[name].like, own[name].array.type))
            elif name in state:
                memory[name] = f"{name}@{mark}"
                actions.append(self.copy_initial(name, place, memory[name]))
            elif name in self.allocations:
                is_settled = name in turn.reverse.settled
                is_kept = name in turn.stable and (is_settled or name not in turn.task.changed_arrays)
                memory[name] = self.at(name, place + 1 if is_settled else place, is_kept=is_kept)
            elif name in self.arrays and not self.arrays[name].label:
                self.reads.add(name)
        kept = stored & self.reads
        assert all(memory.get(name, name) != name for name in kept), f"{kernel.name} changes what the forward pass left"
        return Run(kernel, turn.launch, memory)

    def find_uses(self, kernel: nodes.Kernel) -> tuple[set[str], set[str]]:
        """Arrays that a kernel changes, and all whose elements it uses. Launches of one kernel ask again."""
        uses = self.known_uses.get(kernel)
        if uses is None:
            stored = walk.find_changed(kernel.body)
            uses = self.known_uses[kernel] = stored, walk.find_touched(kernel.body)
        return uses

    def has_changed(self, name: str, place: int) -> bool:
        """Whether an array has been changed when a turn begins."""
        writers = self.writers.get(name, ())
        return bool(writers) and writers[0] < place

    def copy_initial(self, name: str, place: int, copy: str) -> Action:
        """A copy of an array as it was before a turn."""
        if not self.has_changed(name, place):
            return Fresh(copy, name)
        return Copy(copy, self.at(name, place))

    def at(self, name: str, place: int, *, is_kept: bool = False) -> str:
        """Memory with an array's values before a turn: those of the end where nobody changes them any more.

        `is_kept` says that nobody changes those that are read there.
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
        """The forward pass run again, up to the last values that something needs from the middle of it."""
        begun = [Fresh(memory, name) for (place, name), memory in self.replayed.items() if not place]
        replayed = {key: memory for key, memory in self.replayed.items() if key[0]}
        if not replayed:
            return [*begun]
        last = max(place for place, _ in replayed)
        self.find_final(last)
        needed = self.find_needed(last, {name for _, name in replayed})
        memory = {name: f"{name}@replay" for name in sorted(needed)}
        memory |= {name: kept for (place, name), kept in replayed.items() if place == last}  # nothing runs after these
        copies: dict[int, list[Action]] = {}
        for (place, name), kept in replayed.items():
            if place < last:
                copies.setdefault(place, []).append(Copy(kept, memory[name]))
        actions: list[Action] = [*begun, *(Fresh(kept, name) for name, kept in memory.items())]
        for place in range(last):
            actions += [*copies.get(place, []), *self.again(self.turns[place], memory)]
        return actions

    def find_final(self, last: int) -> None:
        """Find the arrays of which a task reads, in each of its turns before `last`, what they hold in the end."""
        for turn in self.turns[:last]:
            self.final[turn.number] = self.final.get(turn.number, self.allocations - self.cells) & turn.final

    def find_needed(self, last: int, arrays: set[str]) -> set[str]:
        """Arrays that must be run again for those that are replayed."""
        tasks = {turn.number: turn.task for turn in self.turns[:last]}
        while True:
            more = set(arrays)
            for number, task in tasks.items():
                body = self.find_wanted(task, number, arrays)
                more |= walk.reads(body) & self.allocations - self.final[number]
            if more == arrays:
                return arrays
            arrays = more

    def find_wanted(self, task: Reversible, number: int, needed: AbstractSet[str]) -> nodes.Block:
        """The statements of a task that change what is `needed`."""
        unread = self.final[number] - needed
        return eliminate_dead_code(task.statements, private=self.allocations - needed - unread, unread=unread)

    def again(self, turn: Turn, memory: Mapping[str, str]) -> list[Action]:
        """One turn of the forward pass, as far as it is needed."""
        if turn.number not in self.agains:
            self.agains[turn.number] = self.rerun(turn.task, turn.number, memory.keys())
        kernel = self.agains[turn.number]
        if kernel is None:
            return []
        return [Run(kernel, turn.launch, {name: memory[name] for name in kernel.arrays if name in memory})]

    def rerun(self, task: Reversible, number: int, needed: AbstractSet[str]) -> nodes.Kernel | None:
        """The kernel that runs a task of the forward pass again; None where nothing of it is needed."""
        body = declare_locals(self.find_wanted(task, number, needed), task.kernel.locals)
        if not any(True for _ in walk.stores(body)):
            return None
        kept = self.allocations - self.final[number] | needed
        self.reads |= {name for name in walk.reads(body) - kept if not self.arrays[name].label}
        return kernel_of(
            task.kernel, f"{task.kernel.name}_again_{number}", body, task.kernel.arrays, task.kernel.arguments
        )


def _without_last_stores(actions: Sequence[Action], arrays: Collection[str]) -> list[Action]:
    """Actions without the stores to arrays after which nobody reads them: clearing them would cost a copy of what came.

    What an earlier launch of the same kernel stores may be read by a later one.
    """
    left = list(actions)
    places: dict[nodes.Kernel, list[int]] = {}
    for place, one in enumerate(actions):
        if isinstance(one, Run):
            places.setdefault(one.kernel, []).append(place)
    touched = {kernel: walk.find_touched(kernel.body) for kernel in places}
    # Kernels without dead code: there is nothing to leave out of one that does not store the array either.
    tidy: set[nodes.Kernel] = set()
    for array in arrays:
        users = [where for kernel, where in places.items() if array in touched[kernel]]
        last = max(users, key=lambda where: where[-1], default=[])
        run = left[last[0]] if len(last) == 1 else None
        if not isinstance(run, Run) or (run.kernel in tidy and array not in walk.find_changed(run.kernel.body)):
            continue
        body = eliminate_dead_code(run.kernel.body, private=[array])
        if body != run.kernel.body:
            body = declare_locals(body, run.kernel.locals)
            run = replace(run, kernel=replace(run.kernel, body=body))
            left[last[0]] = run
        tidy.add(run.kernel)
    return left
