"""The adjoint of an op, step by step: the passes of `ADJOINT` and `ADJOINT_CLEAN_UP`.

    kernels --normalize--> tasks in SSA form --decide--> a plan of each --emit--> their reverses --assemble--> a program

- `normalize` brings the kernels into the form that is reversed.
- `decide_sources` chooses where the reverse of a task gets each value from that it needs; `_plan` is the table of it.
- `emit` writes the reverses as planned, and `use_checkpoints` shortens their tapes where that is asked for.
- `assemble` puts the reversed tasks in order, each on memory as it was when the task began.
- `gather`, `store_whole` and `hand_on` make the kernels short: gathers for atomics, stores for sums, no copies.

A kernel is reversed once, however often it is launched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...analyses import concurrent_loop
from ...ir import RUN_IN_ORDER, NotCovered, nodes, walk
from ._assembly import Assembly, Turn, turns_of
from ._checkpoints import split_into_blocks
from ._frame_reversal import Task
from ._gathers import gather_additions
from ._handed_on import hand_on_adjoints
from ._normalize import AdjointOptions, NormalForm
from ._plan import TaskPlan
from ._program import Program, Run, WithResults
from ._records import handing_out
from ._task import KeptResults, TaskReverse, decide_task, write_task
from ._whole_gradients import Extent, store_whole_gradients


@dataclass(frozen=True)
class Planned:
    """Tasks to reverse, each with the plan of its reverse."""

    form: NormalForm
    tasks: Sequence[Task]
    plans: Sequence[TaskPlan]

    @property
    def kernels(self) -> Iterator[nodes.Kernel]:
        """Each task as a kernel in SSA form."""
        return self.form.kernels


@dataclass(frozen=True)
class Reversed:
    """Tasks and their reverses."""

    form: NormalForm
    tasks: Sequence[Task]
    reverses: Sequence[TaskReverse]

    @property
    def kernels(self) -> Iterator[nodes.Kernel]:
        """The reverse of each task."""
        return (one.kernel for one in self.reverses)


def decide_sources(form: NormalForm, options: AdjointOptions) -> Planned:
    """Decide for each task where its reverse takes each value from that it needs."""
    tasks = form.to_reverse()
    may_keep = options.keeps_results and form.is_one_task
    plans = [decide_task(task, may_keep_results=may_keep, keeps_functions=options.keeps_functions) for task in tasks]
    return Planned(form, tasks, plans)


def emit(planned: Planned, _: AdjointOptions) -> Reversed:
    """Write the reverse of each task as planned. Nothing is chosen here."""
    pairs = zip(planned.tasks, planned.plans, strict=True)
    return Reversed(planned.form, planned.tasks, [write_task(task, plan) for task, plan in pairs])


def use_checkpoints(made: Reversed, options: AdjointOptions) -> Reversed:
    """Let loops with long tapes run in blocks: each block is run again from its first values, then reversed."""
    if not options.has_checkpoints:
        return made

    def shorten(task: Task, reverse: TaskReverse) -> TaskReverse:
        if not reverse.taped:
            return reverse
        steps = split_into_blocks(task.steps, reverse.taped, task.activity, task.names, made.form.numbers)
        task = replace(task, steps=steps)
        return replace(write_task(task, decide_task(task)), taped=frozenset())

    return replace(made, reverses=list(map(shorten, made.tasks, made.reverses)))


def assemble(made: Reversed, options: AdjointOptions) -> Program:
    """Put the reverses in order, each on memory as it was when its task began. Raises NotCovered."""
    form, reverses = made.form, made.reverses
    turns = turns_of(form.tasks, reverses, form.order, options.unchanged)
    discarded = [form.gradients[name] for name in options.made if name in form.gradients and name not in options.active]
    given = frozenset(options.made), form.cells, frozenset(options.outputs)

    def assemble_turns(turns: list[Turn]) -> Program:
        return Assembly(turns, form.arrays, form.gradients, *given).program(discarded)

    program = replace(assemble_turns(turns), has_long_tapes=any(one.taped for one in reverses))
    _check_known(program, {name: reason for task in form.tasks for name, reason in task.unknown.items()})
    if kept := reverses[0].results if reverses else None:
        turn = replace(turns[0], reverse=replace(reverses[0], kernel=kept.backward, reserve=None))
        program = replace(program, results=_with_results(program, assemble_turns([turn]), kept))
    return program


def _with_results(plain: Program, backward: Program, kept: KeptResults) -> WithResults | None:
    """Return the passes of an op of one task that keep what its loops leave; None where that needs more of the call."""
    if not backward.reads <= plain.reads:
        return None
    made = {name: nodes.Array(name, kind, 1) for size in kept.sizes for name, kind, _ in size.arrays}
    arrays = {**backward.arrays, **made}
    backward = replace(backward, arrays=arrays, reads=backward.reads | frozenset(made))
    forward = Program((Run(kept.forward, 0, {}),), arrays, {}, frozenset(), frozenset(), ())
    return WithResults(forward, backward, kept.sizes, kept.iterations)


def _check_known(program: Program, unknown: Mapping[str, NotCovered]) -> None:
    """Refuse a backward pass that needs what atomics returned to one iteration or another in the forward pass."""
    for kernel in program.kernels:
        for name in unknown.keys() & walk.find_touched(kernel.body):
            raise unknown[name]
        for loop in filter(None, map(concurrent_loop, kernel.body)):
            for one in handing_out(loop):
                words = f"the value that atomic_{one.operator} returned in a parallel loop"
                raise NotCovered(words, one.line, kernel.path, remedy=RUN_IN_ORDER)


# Clean-up -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CleanUpOptions:
    """What the clean-up of a backward pass depends on, besides the pass.

    Attributes:
        alone: arrays whose gradients one run of it makes.
        extent: tells which axes are equally long.
        outputs: arrays whose adjoint may be that of an input; None where each sample has a run of its own.
        has_vectors: whether loops that run in order gain by a gather.
    """

    alone: Collection[str]
    extent: Extent
    outputs: Collection[str] | None
    has_vectors: bool


def gather(program: Program, options: CleanUpOptions) -> Program:
    """Let iterations gather what others would add to their elements, instead of adding by atomics."""
    return gather_additions(program, options.extent, has_vectors=options.has_vectors)


def store_whole(program: Program, options: CleanUpOptions) -> Program:
    """Store to adjoints where the first change of an element adds to zero."""
    program, whole = store_whole_gradients(program, sorted(options.alone), options.extent)
    return replace(program, whole=whole)


def hand_on(program: Program, options: CleanUpOptions) -> Program:
    """Give the adjoint of an output as that of an input where the two are equal."""
    if options.outputs is None:
        return program
    return hand_on_adjoints(program, program.whole, options.outputs, options.extent)
