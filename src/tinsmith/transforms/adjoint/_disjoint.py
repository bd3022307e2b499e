"""Segments that do not overlap, as the kernel's own stores say: `for s in range(start[r], start[r + 1]): y[s] = ...`.

Nothing in the text of `w[s]` tells that the samples of two rays are different elements. But where each iteration of a
parallel loop stores a value of its own to `y[s]`, without an atomic, two iterations that met there would race. So the
kernel says that they do not meet, and an array that it uses at the same places alone needs no atomics in the adjoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...source.ir import nodes, types, walk
from ..analysis import affine, expanded
from ._form import Branch, Loop, Step, repeatable_definitions, steps_in, stores_in
from ._inverses import find_dependents

Place = tuple[nodes.Expr, ...]
"""An index, an expression an axis, in which loops over the same range have the same variable."""


@dataclass(frozen=True)
class _Use:
    """An access: the place it is at, and, of a store, whether it says that no other iteration is there."""

    array: str
    place: Place
    is_promise: bool = False


def find_disjoint_arrays(steps: Sequence[Step]) -> frozenset[str]:
    """Arrays that parallel iterations use only at places which the kernel's stores say are one iteration's own."""
    loop = steps[-1] if steps else None
    if not isinstance(loop, Loop) or not loop.is_parallel:
        return frozenset()
    uses = list(_Reading(loop, steps).uses(loop.body, {}, is_sure=True))
    promised = {use.place for use in uses if use.is_promise}
    shared = {use.array for use in uses if not any(_holds(use.place, one) for one in promised)}
    return frozenset(use.array for use in uses) - shared


def _holds(place: Place, promised: Place) -> bool:
    """Whether a place has every axis of another one."""
    return not Counter(promised) - Counter(place)


@dataclass
class _Reading:
    """Collects the accesses of a parallel loop."""

    loop: Loop
    steps: Sequence[Step]
    ranges: dict[tuple[nodes.Expr, nodes.Expr], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        changed = {one.array for one in stores_in(self.steps)}
        self.own_values = self._own_values()
        self.definitions: Mapping[str, nodes.Expr] = repeatable_definitions(steps_in(self.steps), changed)

    def uses(self, body: Sequence[Step], names: Mapping[str, nodes.Expr], *, is_sure: bool) -> Iterator[_Use]:
        """Accesses of steps; `is_sure` says that every iteration of the loops around them runs them."""
        for step in body:
            match step:
                case nodes.Assign(value=nodes.Load() as load):
                    yield _Use(load.array, self.place(load.index, names))
                case nodes.Atomic():
                    yield _Use(step.array, self.place(step.index, names))
                case nodes.Store():
                    place = self.place(step.index, names)
                    yield _Use(step.array, place, is_sure and self.is_in_range(place) and self.is_own(step))
                case Branch():
                    yield from self.uses(step.body, names, is_sure=False)
                    yield from self.uses(step.orelse, names, is_sure=False)
                case Loop():
                    inner = self.inside(step, names)
                    yield from self.uses(step.body, names if inner is None else inner, is_sure=is_sure and bool(inner))
                case _:
                    pass

    def inside(self, loop: Loop, names: Mapping[str, nodes.Expr]) -> dict[str, nodes.Expr] | None:
        """What a loop's variables stand for: the same as in another loop over the same range."""
        if not loop.names:
            return None
        found = dict(names)
        for name, pair in zip(loop.names, loop.bounds, strict=True):
            first, end = (self.steady(bound, names) for bound in pair)
            # A loop that ends early has not been everywhere: its range is its own.
            key = (nodes.Local(name, "i32"), end) if loop.exit is not None else (first, end)
            found[name] = nodes.Local(self.ranges.setdefault(key, f"{name} in its range"), "i32")
        return found

    def steady(self, expr: nodes.Expr, names: Mapping[str, nodes.Expr]) -> nodes.Expr:
        """An expression as far as it can be worked out from memory that does not change."""
        known = {name for name in self._locals(expr) if name not in self.definitions}
        found = expanded(expr, known, self.definitions)
        return walk.substituted(expr if found is None else found, names)

    def _locals(self, expr: nodes.Expr) -> set[str]:
        """Locals that an expression is made of, those behind definitions too."""
        found, waiting = set[str](), walk.locals_in([expr])
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting |= walk.locals_in([self.definitions[name]]) if name in self.definitions else set()
        return found

    def place(self, index: Sequence[nodes.Expr], names: Mapping[str, nodes.Expr]) -> Place:
        return tuple(_in_order(self.steady(one, names)) for one in index)

    def is_in_range(self, place: Place) -> bool:
        """Whether a place is one of a range's, and not found by a list of places, which may name one twice."""
        variables = {*self.ranges.values()}
        loads = [part for expr in place for part in walk.parts(expr) if isinstance(part, nodes.Load)]
        return variables.isdisjoint(walk.locals_in(loads)) and not variables.isdisjoint(walk.locals_in(place))

    def is_own(self, store: nodes.Store) -> bool:
        """Whether iterations of the parallel loop that met here would leave a float by chance.

        Labels are another matter: somebody may not mind whose number stays.
        """
        return types.is_float(store.value.type) and not walk.locals_in([store.value]).isdisjoint(self.own_values)

    def _own_values(self) -> frozenset[str]:
        """Locals that hang on the parallel loop's variable, or on what a loop inside hands on."""
        heads = [one.head for step in steps_in(self.loop.body) if isinstance(step, Loop) for one in step.carried]
        found = find_dependents(self.loop.body, [*self.loop.names, *heads])
        for loop in (step for step in steps_in(self.loop.body) if isinstance(step, Loop)):
            found |= find_dependents(loop.body, found)
        return found


def _in_order(expr: nodes.Expr) -> nodes.Expr:
    """A sum with its terms in one order: `start + j` and `j + start` are one place."""
    found = affine(expr, {})
    terms: list[tuple[nodes.Expr, int]] = []
    for part, factor in found.terms.items():
        terms.append((nodes.Local(part, "i32") if isinstance(part, str) else part, factor))
    total: nodes.Expr = nodes.Const(found.constant, "i32")
    for part, factor in sorted(terms, key=repr):
        total = nodes.Binary("+", total, nodes.Binary("*", nodes.Const(factor, "i32"), part, "i32"), "i32")
    return total
