"""The serial twin of a backward pass: the same kernels on one thread, where no other thread adds to an element."""

from __future__ import annotations

from dataclasses import replace

from ...source.ir import nodes, walk
from ..polish import write_out_addition
from ._program import Action, Program, Reserve, Run


def on_one_thread(program: Program) -> Program:
    """The same program without parallel loops, and without atomic additions."""
    twins = _Twins()
    return replace(program, actions=tuple(twins.action(action) for action in program.actions))


def serial_twin(kernel: nodes.Kernel) -> nodes.Kernel:
    """The same kernel without parallel loops, and without atomic additions."""
    return replace(kernel, body=tuple(walk.transform(one, lambda expr: expr, _plain) for one in kernel.body))


class _Twins:
    """Serial twins of launches; launches of one kernel share its twin."""

    def __init__(self) -> None:
        self._twins: dict[nodes.Kernel, nodes.Kernel] = {}

    def action(self, action: Action) -> Action:
        match action:
            case Run():
                return self._run(action)
            case Reserve(_, iterations, _, count):
                iterations = self._run(iterations) if isinstance(iterations, Run) else iterations
                return replace(action, iterations=iterations, count=None if count is None else self._run(count))
            case _:
                return action

    def _run(self, run: Run) -> Run:
        twin = self._twins.get(run.kernel)
        if twin is None:
            twin = self._twins[run.kernel] = serial_twin(run.kernel)
        return replace(run, kernel=twin)


def _plain(one: nodes.Stmt) -> nodes.Stmt:
    return replace(one, is_parallel=False) if isinstance(one, nodes.For) else write_out_addition(one)
