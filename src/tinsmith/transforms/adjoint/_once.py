"""Stores to elements that nothing used before: `y[i, 0] = a`, `y[i, 1] = b`.

The reverse of a store takes the element's adjoint and clears it, for whatever used the element before. Where nothing
did, clearing it costs a store, and a copy of the adjoint that was given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...source.ir import nodes
from ..analysis import Affine, affine, whole_definitions
from ._form import Branch, Loop, Step, step_definitions

MANY = 256
"""Different indices of an array beyond which they are not compared with each other."""


@dataclass(frozen=True)
class _Use:
    """A load, store or atomic; `names` are those of all loops around it, None inside one without a name."""

    of: nodes.Load | nodes.Store | nodes.Atomic
    task: int
    index: tuple[Affine, ...]
    names: tuple[str, ...] | None

    @property
    def is_elsewhere_each_time(self) -> bool:
        """Whether no two iterations use one element: every loop variable moves an axis of its own."""
        alone = {name for axis in self.index if len(axis.varying) == 1 for name in axis.varying}
        return self.names is not None and alone.issuperset(self.names)

    def is_apart(self, other: _Use) -> bool:
        pairs = zip(self.index, other.index, strict=False)
        return self.of.entry != other.of.entry or any(mine.never_equals(theirs) for mine, theirs in pairs)


def written_once(
    tasks: Sequence[Sequence[Step]], kept: Collection[str] = (), repeated: Collection[int] = ()
) -> frozenset[int]:
    """Numbers of stores to elements that nothing wrote or read before: there is no earlier value to clear for.

    Args:
        tasks: the steps of each, in the order in which they run.
        kept: arrays of which somebody wants to know the adjoint that they had before all tasks.
        repeated: numbers of tasks that run again later: what they store to may have been used the time before.
    """
    uses: dict[str, list[_Use]] = {}
    for number, steps in enumerate(tasks):
        for use in _Reading(number, whole_definitions(step_definitions(steps))).uses(steps, ()):
            uses.setdefault(use.of.array, []).append(use)
    chosen = (found for name, found in uses.items() if name not in kept)
    return frozenset(number for found in chosen for number in _firsts(found, repeated))


def _firsts(uses: Sequence[_Use], repeated: Collection[int]) -> Iterator[int]:
    """Of one array's uses, the numbers of stores before which nothing uses the element."""
    if len({(use.of.index, use.of.entry) for use in uses}) > MANY:
        return
    for one in uses:
        if isinstance(one.of, nodes.Store) and one.is_elsewhere_each_time and one.task not in repeated:
            before = (other for other in uses if other is not one and other.task <= one.task)
            if all(map(one.is_apart, before)):
                yield one.of.number


class _Reading:
    """Collects what a task uses."""

    def __init__(self, task: int, definitions: Mapping[str, nodes.Expr]) -> None:
        self.task = task
        self.definitions = definitions

    def uses(self, steps: Sequence[Step], names: tuple[str, ...] | None) -> Iterator[_Use]:
        for step in steps:
            match step:
                case nodes.Assign(value=nodes.Load() as load):
                    yield self.use(load, names)
                case nodes.Store() | nodes.Atomic():
                    yield self.use(step, names)
                case Branch():
                    yield from self.uses(step.body, names)
                    yield from self.uses(step.orelse, names)
                case Loop():
                    inside = None if names is None or not step.names else (*names, *step.names)
                    yield from self.uses(step.body, inside)
                case _:
                    pass

    def use(self, of: nodes.Load | nodes.Store | nodes.Atomic, names: tuple[str, ...] | None) -> _Use:
        return _Use(of, self.task, tuple([affine(one, self.definitions) for one in of.index]), names)
