"""A kernel as tasks: its parallel loops, and what stands between them; and a task in SSA form, from which its reverse
is made.

Tasks share nothing but memory: a local of the top level that another task uses becomes an expression where it
is only a matter of sizes and arguments, else memory of its own, one element without dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..._lazy import lazy
from ...analyses import Activity, definitions, tasks_of
from ...ir import ONE, ZERO, Names, Type, iteration_number, nodes, walk, with_cells
from .._evaluate import extent
from ..polish import declare_locals, eliminate_dead_code, inline_sizes
from ._ssa import Step, parallel_loop, repeatable_definitions


@dataclass(frozen=True)
class Parts:
    """A kernel's tasks, and the arrays that hold what passes between them."""

    kernel: nodes.Kernel
    tasks: tuple[nodes.Block, ...]
    cells: frozenset[str]


def parts_of(kernel: nodes.Kernel) -> Parts:
    """Split a kernel. What may end a run has no derivative, and did not end the forward pass: it is left out."""
    body = kernel.body
    if any(map(walk.may_fail, body)):
        body = walk.rewrite(body, lambda one: () if one.may_fail else (one,))
    # A local that is a matter of sizes and arguments is written out in each task; only the others need memory.
    plain = replace(kernel, body=inline_sizes(declare_locals(eliminate_dead_code(body), kernel.locals)))
    whole = with_cells(plain, frozenset(_find_shared_locals(tasks_of(plain.body))))
    cells = frozenset(kernel.cells) | frozenset(whole.cells)
    return Parts(replace(whole, cells=()), tasks_of(whole.body), cells)


def kernel_of(
    kernel: nodes.Kernel,
    name: str,
    body: Sequence[nodes.Stmt],
    arrays: Mapping[str, nodes.Array],
    arguments: Mapping[str, tuple[Type, tuple[int, ...]]],
) -> nodes.Kernel:
    """Build a kernel from statements of another one, with those arrays and arguments that the statements use."""
    used = walk.find_touched(body) | walk.find_sized(body)
    asked = {part.name for part in walk.parts_in(body) if isinstance(part, nodes.Argument)}
    arrays = {key: array for key, array in arrays.items() if key in used}
    arguments = {key: kind for key, kind in arguments.items() if key in asked}
    # Whatever memory was its own is handed to it.
    made = replace(kernel, name=name, arrays=arrays, arguments=arguments, body=tuple(body))
    return replace(made, cells=(), block_memory={})


def _find_shared_locals(tasks: Sequence[nodes.Block]) -> list[str]:
    """Return the locals that one task assigns and another reads or changes."""
    shared: dict[str, None] = {}
    mentions = [walk.find_mentioned(task) for task in tasks]
    for place, task in enumerate(tasks):
        for one in task:
            for name in _find_assigned(one):
                if any(name in other for number, other in enumerate(mentions) if number != place):
                    shared[name] = None
    return list(shared)


def _find_assigned(one: nodes.Stmt) -> list[str]:
    """Return the locals of the top level that a statement assigns; those of a parallel loop are its iterations' own."""
    if walk.is_parallel(one):
        return []
    return [
        name for part in walk.statements([one]) if not isinstance(part, nodes.For) for name in walk.find_assigned(part)
    ]


@dataclass(frozen=True)
class Task:
    """A task in SSA form, and what its reverse is made from.

    Attributes:
        kernel: the kernel that it is a part of.
        number: its place among the tasks of the op.
        steps: its steps.
        own: arrays without an element that two parallel iterations touch.
        activity: what has a gradient.
        names: its names.
        gradients: names of the adjoints of arrays that have one.
        once: numbers of stores that write an element which nothing wrote or read before.
    """

    kernel: nodes.Kernel
    number: int
    steps: tuple[Step, ...]
    own: frozenset[str]
    activity: Activity
    names: Names
    gradients: Mapping[str, str]
    once: frozenset[int]

    @property
    def parallel(self) -> nodes.Loop | None:
        """Return the loop that a parallel task is; None for a serial task."""
        return parallel_loop(self.steps)

    @property
    def body(self) -> tuple[Step, ...]:
        """Return the steps that one thread runs."""
        return self.steps if self.parallel is None else self.parallel.body

    @lazy
    def changed_arrays(self) -> frozenset[str]:
        """Return the arrays that the task changes."""
        return frozenset(walk.find_changed(self.steps))

    @lazy
    def restored_arrays(self) -> frozenset[str]:
        """Return the arrays whose overwritten values are put back: inner loops read them, and run a second time."""
        loops = [step for step in walk.statements(self.body) if isinstance(step, nodes.Loop)]
        return frozenset(walk.find_loaded(loops))

    @lazy
    def expressions(self) -> dict[str, list[nodes.Expr]]:
        """Return all expressions that each local is given: more than one where branches assign it."""
        expressions: dict[str, list[nodes.Expr]] = {}
        for name, value in definitions(self.steps):
            if value is not None:
                expressions.setdefault(name, []).append(value)
        return expressions

    @property
    def iterations(self) -> nodes.Expr | None:
        """Return the number of parallel iterations; None if only a run can tell."""
        return ONE if self.parallel is None else extent(self.parallel.bounds)

    @property
    def place(self) -> nodes.Expr:
        """Return the number of an iteration among the parallel ones."""
        return ZERO if self.parallel is None else iteration_number(self.parallel.names, self.parallel.bounds)

    @property
    def definitions(self) -> dict[str, nodes.Expr]:
        """Return the definitions of locals of the task and of its parallel iterations."""
        steps = [*self.steps, *([] if self.parallel is None else self.body)]
        return repeatable_definitions(walk.frame_statements(steps), ())
