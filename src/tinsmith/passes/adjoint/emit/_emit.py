"""The third and fourth step of the adjoint: the reverses of tasks, written as planned and put in order.

    for k in range(4):                   for k in range(4):
        t = t * s[k]                         push(t)
    y[i] = t                   ->            t = t * s[k]
                                         grad_t = grad_y[i]
                                         for k_back in range(4):
                                             k = 4 - 1 - k_back
                                             t = pop()
                                             grad_s[k] += grad_t * t
                                             grad_t = grad_t * s[k]

How a frame is reversed is in `_frame_reversal`, how a loop is in `_loop_reversal`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....analyses import concurrent_loop
from ....ir import RUN_IN_ORDER, NotCovered, nodes, walk
from .._plan import TaskPlan
from .._program import AdjointProgram, Run, WithResults
from .._records import find_used_results
from .._tasks import Task
from ..normalize import AdjointOptions, NormalForm
from ._assembly import Assembly, Turn, turns_of
from ._task_reverse import KeptResults, TaskReverse, write_task


@dataclass(frozen=True)
class Planned:
    """Tasks to reverse, each with the plan of its reverse; and the reverses that were written to decide."""

    form: NormalForm
    tasks: Sequence[Task]
    plans: Sequence[TaskPlan]
    drafts: Sequence[TaskReverse | None]

    @property
    def kernels(self) -> Iterator[nodes.Kernel]:
        """Return each task as a kernel in SSA form."""
        return self.form.kernels


@dataclass(frozen=True)
class Reversed:
    """Tasks and their reverses."""

    form: NormalForm
    tasks: Sequence[Task]
    reverses: Sequence[TaskReverse]

    @property
    def kernels(self) -> Iterator[nodes.Kernel]:
        """Return the reverse of each task as a kernel."""
        return (one.kernel for one in self.reverses)


def emit_reverses(planned: Planned, _: AdjointOptions) -> Reversed:
    """Write the reverse of each task as planned. Nothing is chosen here."""
    rows = zip(planned.tasks, planned.plans, planned.drafts, strict=True)
    return Reversed(planned.form, planned.tasks, [draft or write_task(task, plan) for task, plan, draft in rows])


def assemble(made: Reversed, options: AdjointOptions) -> AdjointProgram:
    """Put the reverses in order, each on memory as it was when its task began. Raises NotCovered."""
    form, reverses = made.form, made.reverses
    turns = turns_of(form.tasks, reverses, form.order, options.unchanged)
    # Outputs and scratch start at zero, so nobody asks for the gradient of what they were before.
    unwanted = [name for name in options.allocations if name not in options.active]
    discarded = [form.gradients[name] for name in unwanted if name in form.gradients]
    given = frozenset(options.allocations), form.cells, frozenset(options.outputs)

    def assemble_turns(turns: list[Turn]) -> AdjointProgram:
        return Assembly(turns, form.arrays, form.gradients, *given).program(discarded)

    program = replace(assemble_turns(turns), has_long_tapes=any(one.taped for one in reverses))
    _check_known(program, {name: reason for task in form.tasks for name, reason in task.unknown.items()})
    if kept := reverses[0].results if reverses else None:
        # Only an op of one task gets here, launched once (`NormalForm.is_one_task`).
        turn = replace(turns[0], reverse=replace(reverses[0], kernel=kept.backward, reserve=None))
        program = replace(program, results=_with_results(program, assemble_turns([turn]), kept))
    return program


def _with_results(plain: AdjointProgram, backward: AdjointProgram, kept: KeptResults) -> WithResults | None:
    """Return the passes of an op of one task that keep what its loops leave; None where that needs more of the call."""
    # A call saves what the plain program reads; nothing else is at hand in the backward pass.
    if not backward.reads <= plain.reads:
        return None
    made = {name: nodes.Array(name, kind, 1) for size in kept.sizes for name, kind, _ in size.arrays}
    arrays = {**backward.arrays, **made}
    backward = replace(backward, arrays=arrays, reads=backward.reads | frozenset(made))
    forward = AdjointProgram((Run(kept.forward, 0, {}),), arrays, {}, frozenset(), frozenset(), ())
    return WithResults(forward, backward, kept.sizes, kept.iterations)


def _check_known(program: AdjointProgram, unknown: Mapping[str, NotCovered]) -> None:
    """Refuse a backward pass that needs what atomics returned to one iteration or another in the forward pass."""
    for kernel in program.kernels:
        for name in unknown.keys() & walk.find_touched(kernel.body):
            raise unknown[name]
        for loop in filter(None, map(concurrent_loop, kernel.body)):
            for one in find_used_results(loop):
                words = (
                    f"the return value of atomic_{one.operator} in a parallel loop, which "
                    "depends on the order of the iterations"
                )
                raise NotCovered(words, one.line, kernel.path, remedy=RUN_IN_ORDER)
