"""Races of a task: what its parallel loop computes depends on the order of the iterations, so it has no derivative."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....analyses import Conflict, Verdict, describe_access, find_conflicts_of_loop
from ....ir import NotCovered, Race, nodes, types


def find_races(
    kernel: nodes.Kernel, statements: Sequence[nodes.Stmt], own: Collection[str], *, refuses_possible: bool
) -> dict[str, NotCovered]:
    """Return arrays of floats in which parallel iterations race, each with the refusal that names two accesses.

    Args:
        kernel: the kernel of the task.
        statements: the task.
        own: arrays no element of which two iterations touch.
        refuses_possible: whether possible races count too. If not, iterations that may race run in order, or the
            caller promises that they do not.
    """
    loop = find_parallel_loop(statements)
    if loop is None:
        return {}
    conflicts = find_conflicts_of_loop(kernel, loop, lambda _: own)
    chosen = [one for one in conflicts if refuses_possible or one.verdict is Verdict.CERTAIN]
    return {one.array: _refuse(one, kernel) for one in chosen if types.is_float(kernel.arrays[one.array].type)}


def find_parallel_loop(statements: Sequence[nodes.Stmt]) -> nodes.For | None:
    """Return the parallel loop that a task is; None for what stands between two."""
    last = statements[-1] if statements else None
    return last if isinstance(last, nodes.For) and last.is_parallel else None


def _refuse(conflict: Conflict, kernel: nodes.Kernel) -> NotCovered:
    change, other = (describe_access(one, kernel) for one in (conflict.change, conflict.other))
    race = Race(change, conflict.change.line, other, conflict.other.line, conflict.other.is_load)
    words = f"`{other}`, which another iteration of the parallel loop changes"
    return NotCovered(words, conflict.change.line, kernel.path, race)
