"""SSA, the form of a kernel that is reversed: every local gets its value once, and loops say what they carry.

A *frame* is what runs straight through: a task, or the body of a loop. In a frame every local is given a value at
most once on each path, so that all of them can still be read when the frame is reversed. What changes from one
iteration to the next is carried by the loop in a cell. There is no `break` or `continue`: what would be skipped
stands under an `if`, and a loop that may end early has an `exit`, asked after each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...source.ir import nodes, walk
from ..analysis import Definition, single_definitions


@dataclass(frozen=True, slots=True)
class CarriedLocal:
    """A local that an iteration hands to the next.

    Attributes:
        first: its value before the loop.
        head: what an iteration calls what it is handed.
        next: what the iteration hands on.
        last: what it is called after the loop.
        cell: what holds it in between.
    """

    first: nodes.Expr
    head: str
    next: nodes.Expr
    last: str
    cell: str


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: over `bounds` if it has names, else until `exit`, a truth that its body gives a value.

    Attributes:
        most: of a loop over one block of another's iterations, how many these are at most.
        has_blocks: whether it is the loop over such blocks.
    """

    names: tuple[str, ...]
    bounds: tuple[tuple[nodes.Expr, nodes.Expr], ...]
    body: tuple[Step, ...]
    carried: tuple[CarriedLocal, ...] = ()
    exit: str | None = None
    is_parallel: bool = False
    line: int = 0
    number: int = nodes.NUMBER
    most: nodes.Expr | None = None
    has_blocks: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`. Its condition is a local's value, a constant or an argument: it can be asked again."""

    condition: nodes.Expr
    body: tuple[Step, ...]
    orelse: tuple[Step, ...]
    line: int = 0
    number: int = nodes.NUMBER


Step: TypeAlias = nodes.Assign | nodes.Decompose | nodes.Store | nodes.Atomic | Branch | Loop


def number_steps(body: Sequence[Step], numbers: Iterator[int]) -> tuple[Step, ...]:
    """Steps with numbers of their own."""
    inside = (with_bodies(one, lambda inner: number_steps(inner, numbers)) for one in body)
    return tuple([replace(one, number=next(numbers)) for one in inside])


def with_bodies(step: Step, change: Callable[[tuple[Step, ...]], tuple[Step, ...]]) -> Step:
    """A step with each block inside it changed, a branch's `else` last."""
    match step:
        case Branch():
            return replace(step, body=change(step.body), orelse=change(step.orelse))
        case Loop():
            return replace(step, body=change(step.body))
        case _:
            return step


def steps_in(body: Sequence[Step]) -> Iterator[Step]:
    """Steps and everything inside them, in order."""
    for one in body:
        yield one
        if isinstance(one, Branch):
            yield from steps_in(one.body)
            yield from steps_in(one.orelse)
        elif isinstance(one, Loop):
            yield from steps_in(one.body)


def frame_steps(body: Sequence[Step]) -> Iterator[Step]:
    """The steps of a frame: what stands in branches too, what stands in inner loops not."""
    for one in body:
        yield one
        if isinstance(one, Branch):
            yield from frame_steps(one.body)
            yield from frame_steps(one.orelse)


def frame_locals(body: Sequence[Step]) -> list[str]:
    """Locals that a frame gives a value, in order; without loops' names and carried heads."""
    names: dict[str, None] = {}
    for one in frame_steps(body):
        if isinstance(one, nodes.Assign | nodes.Decompose):
            names |= dict.fromkeys(walk.find_assigned(one))
        elif isinstance(one, Loop):
            names |= dict.fromkeys(carried.last for carried in one.carried)
    return list(names)


def plain_steps(body: Sequence[Step]) -> Iterator[nodes.Assign | nodes.Decompose | nodes.Store | nodes.Atomic]:
    """Every step that gives something a value; what loops hand on is assigned."""
    for one in steps_in(body):
        if isinstance(one, nodes.Assign | nodes.Decompose | nodes.Store | nodes.Atomic):
            yield one
        elif isinstance(one, Loop):
            for carried in one.carried:
                for value in (carried.first, carried.next):
                    yield from (nodes.Assign(name, value, one.line) for name in (carried.head, carried.last))


def parallel_loop(task: Sequence[Step]) -> Loop | None:
    """The loop that a parallel task is; what stands before it is for its bounds."""
    last = task[-1] if task else None
    return last if isinstance(last, Loop) and last.is_parallel else None


def loads_in(body: Sequence[Step]) -> Iterator[nodes.Load]:
    """Every load: each is a step of its own."""
    return (one.value for one in steps_in(body) if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Load))


def stores_in(body: Sequence[Step]) -> Iterator[nodes.Store | nodes.Atomic]:
    """Every change of memory."""
    return (one for one in steps_in(body) if isinstance(one, nodes.Store | nodes.Atomic))


def locals_read(step: Step) -> set[str]:
    """Locals that a step reads itself."""
    match step:
        case Branch():
            return walk.locals_in([step.condition])
        case Loop():
            handed = [expr for one in step.carried for expr in (one.first, one.next)]
            return walk.locals_in([*handed, *(bound for pair in step.bounds for bound in pair)])
        case _:
            return walk.locals_in(walk.expressions(step))


def step_definitions(body: Sequence[Step]) -> Iterator[Definition]:
    """Every step that gives a local a value; what loops hand on apart."""
    for step in steps_in(body):
        if isinstance(step, nodes.Assign):
            yield step.name, step.value
        elif isinstance(step, nodes.Decompose | nodes.Atomic):
            yield from ((name, None) for name in walk.find_assigned(step))


def collect_locals(body: Sequence[Step]) -> set[str]:
    """Every local that steps give a value, and that loops among them have of their own."""
    names: set[str] = set()
    for step in steps_in(body):
        if isinstance(step, Loop):
            names |= {*step.names, *(name for one in step.carried for name in (one.head, one.last, one.cell))}
        elif not isinstance(step, Branch):
            names.update(walk.find_assigned(step))
    return names


def collect_expressions(body: Sequence[Step]) -> dict[str, list[nodes.Expr]]:
    """Every expression that a local is given: more than one where branches end with it."""
    expressions: dict[str, list[nodes.Expr]] = {}
    for step in steps_in(body):
        if isinstance(step, nodes.Assign):
            expressions.setdefault(step.name, []).append(step.value)
    return expressions


def repeatable_definitions(steps: Iterable[Step], changed: Collection[str]) -> dict[str, nodes.Expr]:
    """What locals with one definition are computed from, if it can be done again: no array in `changed` is read."""
    given = single_definitions((one.name, one.value) for one in steps if isinstance(one, nodes.Assign))
    return {name: value for name, value in given.items() if not _loads_any(value, changed)}


def _loads_any(expr: nodes.Expr, arrays: Collection[str]) -> bool:
    return any(isinstance(part, nodes.Load) and part.array in arrays for part in walk.parts(expr))
