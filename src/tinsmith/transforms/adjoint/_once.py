"""Stores to elements that nothing used before: `y[i, 0] = a`, `y[i, 1] = b`.

The reverse of a store takes the element's adjoint and clears it, for whatever used the element before. Where nothing
did, clearing it costs a store, and a copy of the adjoint that was given.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...source.ir import nodes
from ._form import Branch, Loop, Step, whole_numbers

MANY = 256
"""Different indices of an array beyond which they are not compared with each other."""


@dataclass(frozen=True)
class _Linear:
    """An index as a sum: multiples of numbers that differ from iteration to iteration, of others, and a constant."""

    varying: Mapping[str, int] = field(default_factory=dict)
    steady: Mapping[nodes.Expr, int] = field(default_factory=dict)
    constant: int = 0

    def plus(self, other: _Linear, factor: int = 1) -> _Linear:
        return _Linear(
            _sum(self.varying, other.varying, factor),
            _sum(self.steady, other.steady, factor),
            self.constant + factor * other.constant,
        )

    def times(self, factor: int) -> _Linear:
        return _Linear().plus(self, factor)

    def never_equals(self, other: _Linear) -> bool:
        """Whether the two differ, in whichever iterations, as 2 i and 2 j + 1 do: both move in multiples of 2."""
        steady = _sum(self.steady, other.steady, -1)
        step = math.gcd(*self.varying.values(), *other.varying.values(), *steady.values())
        apart = self.constant - other.constant
        return apart % step != 0 if step else apart != 0


def _sum(one: Mapping, other: Mapping, factor: int) -> dict:
    found = {key: one.get(key, 0) + factor * other.get(key, 0) for key in {**one, **other}}
    return {key: value for key, value in found.items() if value}


@dataclass(frozen=True)
class _Use:
    """A load, store or atomic; `names` are those of all loops around it, None inside one without a name."""

    of: nodes.Load | nodes.Store | nodes.Atomic
    task: int
    index: tuple[_Linear, ...]
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
        for use in _Reading(number, whole_numbers(steps)).uses(steps, ()):
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
        return _Use(of, self.task, tuple(map(self.linear, of.index)), names)

    def linear(self, expr: nodes.Expr) -> _Linear:
        match expr:
            case nodes.Const(value) if expr.type == "i32":
                return _Linear(constant=int(value))
            case nodes.Local(name, "i32") if name in self.definitions:
                return self.linear(self.definitions[name])
            case nodes.Local(name):
                return _Linear({name: 1})
            case nodes.Size() | nodes.Argument():
                return _Linear(steady={expr: 1})
            case nodes.Binary("+", left, right) if expr.type == "i32":
                return self.linear(left).plus(self.linear(right))
            case nodes.Binary("-", left, right) if expr.type == "i32":
                return self.linear(left).plus(self.linear(right), -1)
            case nodes.Binary("*", left, right) if expr.type == "i32":
                return self.product(expr, self.linear(left), self.linear(right))
            case _:
                return _Linear({repr(expr): 1})  # any number

    def product(self, expr: nodes.Expr, left: _Linear, right: _Linear) -> _Linear:
        for factor, other in ((left, right), (right, left)):
            if not factor.varying and not factor.steady:
                return other.times(factor.constant)
        return _Linear({repr(expr): 1})
