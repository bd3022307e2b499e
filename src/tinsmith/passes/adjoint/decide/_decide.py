"""The second step of the adjoint: decide where the reverse of a task gets the values from that it needs.

What a reversed iteration needs is found by writing it once, with everything at hand: what is live at its head are the
values that it must be given. Nothing of that is kept but the plan.

    for k in range(4):                  taped=("t",): "its update cannot be undone without losing digits"
        s = sin(x[k] + t)         ->    recomputed=("s",)
        t = t * s
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...._lazy import lazy
from ....ir import nodes, types, walk
from ...polish import find_needed, live_before
from .._chain_paths import LEAST_VALUE
from .._dependences import never_overwritten_after_read, never_written_where_read
from .._flops import is_function
from .._plan import LoopPlan, ResultRoom, TaskPlan
from .._promises import NO_PROMISES, Promise, find_segment_loops
from .._regular_logs import find_regular_log
from .._ssa import frame_locals
from .._tasks import Task
from ..emit import (
    Block,
    FrameReversal,
    LoopResults,
    LoopReversal,
    Planned,
    TaskReverse,
    TurnedFrame,
    without_locals,
    write_without_results,
)
from ..normalize import AdjointOptions, NormalForm

Room = Callable[[nodes.Loop], int]
"""How many numbers a forward pass may keep of each iteration of a loop."""


def decide_sources(form: NormalForm, options: AdjointOptions) -> Planned:
    """Decide for each task where its reverse takes each value from that it needs."""
    tasks = form.to_reverse()
    may_keep = options.keeps_results and form.is_one_task
    decided = [
        decide_task(task, may_keep_results=may_keep, keeps_functions=options.keeps_functions, promises=options.promises)
        for task in tasks
    ]
    return Planned(form, tasks, [plan for plan, _ in decided], [draft for _, draft in decided])


def decide_task(
    task: Task,
    *,
    may_keep_results: bool = False,
    keeps_functions: bool = False,
    promises: Mapping[str, Promise] = NO_PROMISES,
) -> tuple[TaskPlan, TaskReverse | None]:
    """Return the plan of a task's reverse; and the reverse, if it was written to find what it reads.

    What it reads and changes of the memory is narrowed down until it stays.

    Args:
        task: the task.
        may_keep_results: whether the task, in SSA form, does what its kernel does, so that it can be the forward pass,
            and keep what the reverse needs of loops.
        keeps_functions: whether it keeps values of functions too.
        promises: what the spec says of the numbers in inputs, by name.
    """
    results = _prepare_results(task, promises) if may_keep_results else None
    room = None if results is None else LoopResults(task.names, results).room
    both = task.changed_arrays & walk.find_loaded(task.steps)
    # An array that the reverse finds in place needs no copy, and nothing that is overwritten in it is kept.
    settled = never_overwritten_after_read(task.body, both & task.own)
    settled |= never_written_where_read(task.body, both - task.own)
    state = both - settled
    while True:
        plan = TaskPlan(state, settled, _Choosing(task, state, room, keeps_functions).plan_loops())
        if not state:
            may_be_kept = any(one.may_be_kept for one in plan.loops.values())
            return (replace(plan, results=results) if may_be_kept else plan), None
        draft = write_without_results(task, plan)
        # A plan for fewer arrays may read fewer still: what was logged for the sake of the others is gone. `state`
        # only shrinks, so this ends.
        left = state & walk.reads(draft.kernel.body)
        if left == state:
            return plan, draft
        state = left


def _prepare_results(task: Task, promises: Mapping[str, Promise]) -> ResultRoom | None:
    """Return what a task's memory for results depends on; None if the number of its iterations is not known before."""
    iterations = task.iterations
    if task.parallel is None or iterations is None:
        return None
    segments = find_segment_loops(task.steps, promises)
    return ResultRoom(task.place, iterations, task.kernel.arrays.values(), task.definitions, segments)


@dataclass(frozen=True)
class _Choosing:
    """Chooses for the loops of a task, the inner ones first."""

    task: Task
    state: frozenset[str]
    room: Room | None
    keeps_functions: bool

    def plan_loops(self) -> dict[int, LoopPlan]:
        """Return the plans of loops by number."""
        loops = [step for step in walk.statements(self.task.body) if isinstance(step, nodes.Loop)]
        if not loops or (not self.state and self.room is None and not any(loop.carried for loop in loops)):
            return {}
        frames = FrameReversal(self.task, self.state, self.task.names.copy())
        writer = LoopReversal(frames, self.choose)
        frames.frame(self.task.body, () if self.task.parallel is None else self.task.parallel.names)
        return writer.plans

    def choose(self, writer: LoopReversal, loop: nodes.Loop, inner: TurnedFrame, known: int) -> LoopPlan:
        """Return the plan of a loop, from the reverse of an iteration that has everything at hand."""
        own = _find_own(writer.frames, loop, known)
        wanted = walk.find_defined(inner.whole) - own
        needed, live = find_needed(inner.whole, wanted)
        # Live before an iteration that runs forward and then back: what neither computes must be handed to it.
        heads = tuple(one.head for one in loop.carried if one.head in live - wanted)
        logged, is_idle = self.choose_logs(writer.frames, loop, walk.reads(needed))
        # Computing a head backwards takes no memory, so one goes on a tape only if that cannot be done.
        rerun = writer.plan_rerun(loop, heads)
        inverted = tuple(one.carried.head for one in rerun.inverses) if rerun else ()
        taped = tuple(name for name in heads if name not in inverted)
        logs = {array: log for array in logged if (log := find_regular_log(loop, array)) is not None}
        reasons = {name: self.explain_tape(loop, name) for name in taped}
        room = self.find_room(loop, taped, logged)
        functions: tuple[str, ...] = ()
        if room is not None and self.keeps_functions:
            forward = writer.rerun(rerun) if rerun else inner.forward
            # Heads come first: without them the loop would have to run again, and all its functions with it.
            functions = _find_functions(forward, inner.backwards)[: room - len(taped)]
        read = walk.find_read(inner.backwards)
        recomputed = tuple(name for name in frame_locals(loop.body) if name in read)
        return LoopPlan(taped, inverted, logged, logs, is_idle, room is not None, functions, recomputed, reasons)

    def find_room(self, loop: nodes.Loop, taped: tuple[str, ...], logged: tuple[str, ...]) -> int | None:
        """Return how much a forward pass may keep of each iteration; None if the loop has to run in any case."""
        # Inside another loop's frame what it leaves would need memory for each iteration of that one. Under a branch
        # it would be read where the condition, computed again, is another one for the last bit of a number.
        if self.room is None or logged or self.state or loop.number not in self._outer_loops:
            return None
        room = self.room(loop)
        return None if len(taped) > room else room

    def choose_logs(self, frames: FrameReversal, loop: nodes.Loop, read: set[str]) -> tuple[tuple[str, ...], bool]:
        """Choose the arrays whose overwritten values a loop logs: those that its reverse, or what follows it, reads.

        `read` are the arrays that a reversed iteration reads, as far as anything needs what it computes.

        Where nobody reads any of what it stores before it has been reversed, the loop need not run forward for it; the
        second result says so.
        """
        stored = walk.find_changed(loop.body) & self.state
        later = frames.read_later[-1]
        loaded = walk.find_loaded(loop.body)
        if loop.carried or loop.exit is not None:
            # What it hands on, and when it ends, is computed from what it stores, so it must run forward for that.
            later |= loaded
        is_idle = stored.isdisjoint(read | later)
        if is_idle:
            stored = set[str]()
        else:
            later |= loaded
        later |= read
        if len(frames.read_later) == 1 and stored:
            # Nothing is reversed after the task's own steps: those before the loop say what they have read.
            inside = _count_loading([loop])
            stored &= read.union(name for name in stored if self._loading[name] > inside[name])
        return tuple(sorted(stored)), is_idle

    @lazy
    def _loading(self) -> Counter[str]:
        return _count_loading(self.task.body)

    @lazy
    def _outer_loops(self) -> frozenset[int]:
        return frozenset(step.number for step in self.task.body if isinstance(step, nodes.Loop))

    def explain_tape(self, loop: nodes.Loop, head: str) -> str:
        """Return the reason why a loop-carried local is taped."""
        kind = self.task.names.types[head]
        if types.is_float(kind) and kind not in LEAST_VALUE:
            return f"undoing its update in {kind} would lose too many digits"
        if not walk.find_touched(loop.body).isdisjoint(self.state):
            # No chain is computed backwards in such a loop (`emit._inverses.plan_rerun`).
            return "the loop changes memory that its iterations read"
        return "its update cannot be undone without losing digits"


def _find_own(frames: FrameReversal, loop: nodes.Loop, known: int) -> set[str]:
    """Find locals of a loop's reversed iteration that nothing outside of it reads. `known` is their number before."""
    own = walk.find_defined(loop.body) | {*loop.names, *(one.head for one in loop.carried)}
    own |= {frames.adjoints[local] for local in own if local in frames.adjoints}
    # A loop looks at its own locals alone: at all those of the task, many loops would take quadratic time.
    for name in frames.names.locals_after(known):
        is_outer = any(local not in own for local in frames.adjoint_owners.get(name, ()))
        # Locals that gather an element's adjoint are read after the loops that add to them.
        if not is_outer and name not in frames.sums.open_totals:
            own.add(name)
    return own


def _count_loading(body: Sequence[nodes.Stmt]) -> Counter[str]:
    """Return how many assignments in statements load elements of each array."""
    assigns = (step for step in walk.statements(body) if isinstance(step, nodes.Assign))
    return Counter(array for step in assigns for array in walk.loaded_in(step))


def _find_functions(forward: Block, backwards: Block) -> tuple[str, ...]:
    """Find locals of an iteration that are values of functions, and that its reverse reads."""
    functions = [one.name for one in forward if isinstance(one, nodes.Assign) and is_function(one.value)]
    live = live_before([*without_locals(forward, functions), *backwards], lambda name: False)
    return tuple(name for name in functions if name in live)
