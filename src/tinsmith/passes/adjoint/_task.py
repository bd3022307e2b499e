"""A task: a parallel loop of a kernel, or what stands between two, in SSA form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..._lazy import lazy
from ...analyses import Activity, definitions
from ...ir import ONE, ZERO, Names, iteration_number, nodes, walk
from .._evaluate import extent
from ._ssa import Step, parallel_loop, repeatable_definitions


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
