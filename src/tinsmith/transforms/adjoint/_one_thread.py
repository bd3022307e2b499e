"""The serial twin of a backward pass: the same kernels on one thread, where nobody else adds to an element."""

from __future__ import annotations

from dataclasses import replace

from ...source.ir import nodes, walk
from .._algebra import plus
from ._program import Action, Program, Reserve, Run


def on_one_thread(program: Program) -> Program:
    """The same program without parallel loops, and without atomic additions."""
    return replace(program, actions=tuple(_serial(action) for action in program.actions))


def _serial(action: Action) -> Action:
    match action:
        case Run():
            return _run(action)
        case Reserve(_, iterations, _, count):
            iterations = _run(iterations) if isinstance(iterations, Run) else iterations
            return replace(action, iterations=iterations, count=None if count is None else _run(count))
        case _:
            return action


def _run(run: Run) -> Run:
    body = tuple(walk.changed(one, lambda expr: expr, _plain) for one in run.kernel.body)
    return replace(run, kernel=replace(run.kernel, body=body))


def _plain(one: nodes.Stmt) -> nodes.Stmt:
    match one:
        case nodes.For():
            return replace(one, is_parallel=False)
        case nodes.Atomic("add", array, index, entry, value, None):
            old = nodes.Load(array, index, entry, value.type)
            return nodes.Store(array, index, entry, plus(old, value), one.line)
        case _:
            return one
