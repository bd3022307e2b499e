"""SSA, the form of a kernel that is reversed: every local gets its value once, and loops say what they carry.

A *frame* is what runs straight through: a task, or the body of a loop. In a frame every local is given a value at
most once on each path, so that all of them can still be read when the frame is reversed. What changes from one
iteration to the next is carried by the loop (`nodes.Loop`) in a cell. There is no `break` or `continue`: what would be
skipped stands under an `if`, and a loop that may end early has an `exit`, asked after each iteration. Each load is a
statement of its own, and a condition is a local's value, a constant or an argument: it can be asked again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from ...analyses import single_definitions
from ...ir import nodes, walk

Step: TypeAlias = nodes.Stmt
"""A statement in SSA form: an `Assign`, `Decompose`, `Store`, `Atomic`, `If` or `Loop`."""


def number_steps(body: Sequence[Step], numbers: Iterator[int]) -> tuple[Step, ...]:
    """Return the steps, nested ones included, with new numbers taken from `numbers`."""
    return walk.rewrite(body, lambda one: (replace(one, number=next(numbers)),))


def frame_locals(body: Sequence[Step]) -> list[str]:
    """Return the locals that a frame assigns, in order, without the variables and heads of its loops."""
    names: dict[str, None] = {}
    for one in walk.frame_statements(body):
        if isinstance(one, nodes.Assign | nodes.Decompose):
            names |= dict.fromkeys(walk.find_assigned(one))
        elif isinstance(one, nodes.Loop):
            names |= dict.fromkeys(carried.last for carried in one.carried)
    return list(names)


def plain_steps(body: Sequence[Step]) -> Iterator[Step]:
    """Yield every step that gives something a value. What a loop carries becomes assignments."""
    for one in walk.statements(body):
        if isinstance(one, nodes.Loop):
            for carried in one.carried:
                # A head is the first value or one that an iteration handed on.
                # So is the last value: a loop may have no iteration.
                for value in (carried.first, carried.next):
                    yield from (nodes.Assign(name, value, one.line) for name in (carried.head, carried.last))
        elif not isinstance(one, nodes.If):
            yield one


class BranchArm(NamedTuple):
    """An arm of a branch."""

    number: int
    condition: nodes.Expr
    holds: bool


class Access(NamedTuple):
    """A load or change of an element, with the loops and arms of branches around it, the outermost first."""

    of: nodes.Load | nodes.Store | nodes.Atomic
    line: int
    around: tuple[nodes.Loop | BranchArm, ...]


def accesses(body: Sequence[Step], around: tuple[nodes.Loop | BranchArm, ...] = ()) -> Iterator[Access]:
    """Yield every access to memory, in the order of the text."""
    for one in body:
        match one:
            case nodes.Assign(value=nodes.Load() as load):
                yield Access(load, one.line, around)
            case nodes.Store() | nodes.Atomic():
                yield Access(one, one.line, around)
            case nodes.If():
                for arm, holds in ((one.body, True), (one.orelse, False)):
                    yield from accesses(arm, (*around, BranchArm(one.number, one.condition, holds)))
            case nodes.Loop():
                yield from accesses(one.body, (*around, one))


def parallel_loop(task: Sequence[Step]) -> nodes.Loop | None:
    """Return the parallel loop of a task, or None if it is serial. Steps before the loop only compute its bounds."""
    last = task[-1] if task else None
    return last if isinstance(last, nodes.Loop) and last.is_parallel else None


def repeatable_definitions(steps: Iterable[Step], changed: Collection[str]) -> dict[str, nodes.Expr]:
    """Return the definitions of locals that have only one, and that can be repeated: they read no `changed` array."""
    given = single_definitions((one.name, one.value) for one in steps if isinstance(one, nodes.Assign))
    return {name: value for name, value in given.items() if walk.arrays_in([value]).isdisjoint(changed)}
