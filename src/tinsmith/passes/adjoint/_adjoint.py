"""The adjoint of an op: its kernels' tasks reversed, the last first.

    kernels --normalize--> tasks in SSA form --decide--> a plan of each --emit--> a program --clean up--> launches

- `_normalize` brings the kernels into the form that is reversed.
- `_decide` chooses where the reverse of a task gets each value from that it needs; `_plan` is the table that it makes.
- `_task` writes the reverse as planned, and `_assembly` puts the reversed tasks in order.
- `clean_up` makes the kernels short: stores instead of sums, gathers instead of atomics, no copies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...analyses import concurrent_loop
from ...ir import RUN_IN_ORDER, NotCovered, nodes, verify_after, walk
from ._assembly import Assembly, Turn, turns_of
from ._checkpoints import split_into_blocks
from ._dependences import Unchanged
from ._frame_reversal import Task
from ._gathers import gather_additions
from ._handed_on import hand_on_adjoints
from ._normalize import NormalForm, normalize
from ._program import Program, Run, WithResults
from ._promises import NO_PROMISES, Promise
from ._records import handing_out
from ._task import KeptResults, TaskReverse, reverse_task
from ._whole_gradients import Extent, store_whole_gradients


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
    form = normalize(
        kernels,
        active,
        outputs,
        detached=detached,
        private=private,
        launches=launches,
        promises=promises,
        refuses_possible_races=refuses_possible_races,
    )
    first = form.tasks[0] if form.tasks else None
    is_alone = keeps_results and len(form.tasks) == len(form.order) == 1 and not form.cells
    is_alone = is_alone and first is not None and first.is_as_written
    reverses = [
        _reverse(form, task, may_keep_results=is_alone, keeps_functions=keeps_functions, in_blocks=has_checkpoints)
        for task in form.to_reverse()
    ]
    turns = turns_of(form.tasks, reverses, form.order, unchanged)
    discarded = [form.gradients[name] for name in made if name in form.gradients and name not in active]

    def assemble(turns: list[Turn]) -> Program:
        assembly = Assembly(turns, form.arrays, form.gradients, frozenset(made), form.cells, frozenset(outputs))
        return assembly.program(discarded)

    program = replace(assemble(turns), has_long_tapes=any(one.taped for one in reverses))
    _check_known(program, {name: reason for task in form.tasks for name, reason in task.unknown.items()})
    if kept := reverses[0].results if is_alone else None:
        turn = replace(turns[0], reverse=replace(reverses[0], kernel=kept.backward, reserve=None))
        program = replace(program, results=_with_results(program, assemble([turn]), kept))
    for kernel in dict.fromkeys(run.kernel for run in program.runs):
        verify_after("adjoint", kernel)
    return program


def clean_up(
    program: Program, alone: Collection[str], extent: Extent, *, outputs: Collection[str] | None, has_vectors: bool
) -> tuple[Program, frozenset[str]]:
    """Return a program whose kernels gather, store and hand on where they added and copied; and what it fills.

    Args:
        program: a backward pass.
        alone: arrays whose gradients one run of it makes.
        extent: tells which axes are equally long.
        outputs: arrays whose adjoint may be that of an input; None where each sample has a run of its own.
        has_vectors: whether loops that run in order gain by a gather.
    """
    program, whole = store_whole_gradients(
        gather_additions(program, extent, has_vectors=has_vectors), sorted(alone), extent
    )
    if outputs is not None:
        program = hand_on_adjoints(program, whole, outputs, extent)
    for kernel in dict.fromkeys(run.kernel for run in program.runs):
        verify_after("clean-up", kernel)
    return program, whole


def _reverse(
    form: NormalForm, task: Task, *, may_keep_results: bool, keeps_functions: bool, in_blocks: bool
) -> TaskReverse:
    """Reverse a task; `in_blocks` lets loops run in blocks, so that their tapes are short."""
    reverse = reverse_task(task, may_keep_results=may_keep_results, keeps_functions=keeps_functions)
    if not in_blocks or not reverse.taped:
        return reverse
    steps = split_into_blocks(task.steps, reverse.taped, task.activity, task.names, form.numbers)
    return replace(reverse_task(replace(task, steps=steps)), taped=frozenset())


def _with_results(plain: Program, backward: Program, kept: KeptResults) -> WithResults | None:
    """The passes of an op of one task that keep what its loops leave; None where that would need more of the call."""
    if not backward.reads <= plain.reads:
        return None
    made = {name: nodes.Array(name, kind, 1) for size in kept.sizes for name, kind, _ in size.arrays}
    arrays = {**backward.arrays, **made}
    backward = replace(backward, arrays=arrays, reads=backward.reads | frozenset(made))
    forward = Program((Run(kept.forward, 0, {}),), arrays, {}, frozenset(), frozenset(), ())
    return WithResults(forward, backward, kept.sizes, kept.iterations)


def _check_known(program: Program, unknown: Mapping[str, NotCovered]) -> None:
    """Refuse a backward pass that needs what atomics returned to one iteration or another in the forward pass."""
    for kernel in dict.fromkeys(run.kernel for run in program.runs):
        for name in unknown.keys() & walk.find_touched(kernel.body):
            raise unknown[name]
        for loop in filter(None, map(concurrent_loop, kernel.body)):
            for one in handing_out(loop):
                words = f"the value that atomic_{one.operator} returned in a parallel loop"
                raise NotCovered(words, one.line, kernel.path, remedy=RUN_IN_ORDER)
