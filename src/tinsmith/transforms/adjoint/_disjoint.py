"""Segments that do not overlap, as the kernels' own stores say: `for s in range(start[r], start[r + 1]): y[s] = ...`.

Nothing in the text of `w[s]` tells that the samples of two rays are different elements. But where each iteration of a
parallel loop stores a value of its own to `y[s]`, without an atomic, two iterations that met there would race. So the
kernel says that they do not meet, and an array that it uses at the same places alone needs no atomics in the adjoint.

What one kernel of an op says holds in the others, where the places follow from memory that none of them changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...source.ir import nodes, types, walk
from ..analysis import affine, expanded
from ._form import Branch, Loop, Step, repeatable_definitions, steps_in, stores_in
from ._inverses import find_dependents

Place = tuple[nodes.Expr, ...]
"""An index, an expression an axis, in which loops over the same range have the same variable."""


@dataclass(frozen=True)
class _Use:
    """An access.

    Attributes:
        place: where it is; the variable of a loop that may end early is that loop's own.
        range: the same, but the variable of a loop that may end early may have any value of its range.
        is_promise: whether it is a store that says that no other iteration is there.
    """

    array: str
    place: Place
    range: Place
    is_promise: bool = False


def find_disjoint_arrays(tasks: Sequence[Sequence[Step]]) -> list[frozenset[str]]:
    """For each task of an op, arrays that parallel iterations use only at places which stores say are one's own."""
    changed = frozenset(one.array for steps in tasks for one in stores_in(steps))
    variables = _Variables(changed)
    uses = [_uses(steps, variables) for steps in tasks]
    promised = [{use.place for use in found if use.is_promise} for found in uses]
    everywhere = {place for places in promised for place in places if variables.is_known_everywhere(place)}
    return [_never_shared(found, places | everywhere) for found, places in zip(uses, promised, strict=True)]


def _uses(steps: Sequence[Step], variables: _Variables) -> list[_Use]:
    loop = steps[-1] if steps else None
    if not isinstance(loop, Loop) or not loop.is_parallel:
        return []
    reading = _Reading(loop, steps, variables)
    names = reading.inside(loop, {})
    return [] if names is None else list(reading.uses(loop.body, names, names, is_sure=True))


def _never_shared(uses: Collection[_Use], promised: Collection[Place]) -> frozenset[str]:
    shared = {
        use.array for use in uses if not any(_holds(use.place, one) or _holds(use.range, one) for one in promised)
    }
    return frozenset(use.array for use in uses) - shared


def _holds(place: Place, promised: Place) -> bool:
    """Whether a place has every axis of another one."""
    return not Counter(promised) - Counter(place)


@dataclass
class _Variables:
    """One variable for each range that loops run over.

    Attributes:
        changed: arrays that a task of the op changes.
        found: the variables of ranges: of parallel loops, and of loops inside, the outermost first.
        everywhere: those whose range is the same in all tasks.
    """

    changed: frozenset[str]
    found: dict[tuple[nodes.Expr, nodes.Expr, bool, int], str] = field(default_factory=dict)
    everywhere: set[str] = field(default_factory=set)

    def over(
        self, first: nodes.Expr, end: nodes.Expr, taken: Collection[nodes.Expr], *, is_parallel: bool
    ) -> nodes.Local:
        """The variable of a range; loops in one another over the same range have different ones."""
        for number in range(len(taken) + 1):
            name = f"variable {len(self.found)}"
            found = nodes.Local(self.found.setdefault((first, end, is_parallel, number), name), "i32")
            if found.name == name and self.is_known_everywhere((first, end)):
                self.everywhere.add(name)
            if found not in taken:
                return found
        raise AssertionError("more variables are taken than there are")

    def is_known_everywhere(self, place: Place) -> bool:
        """Whether expressions have the same values in all tasks: no launch has arguments of its own in them."""
        parts = [part for expr in place for part in walk.parts(expr)]
        return walk.locals_in(place) <= self.everywhere and not any(
            isinstance(part, nodes.Argument) or (isinstance(part, nodes.Load) and part.array in self.changed)
            for part in parts
        )

    @property
    def inner(self) -> set[str]:
        """Variables of loops inside parallel ones."""
        return {name for (_, _, is_parallel, _), name in self.found.items() if not is_parallel}


@dataclass
class _Reading:
    """Collects the accesses of a parallel loop."""

    loop: Loop
    steps: Sequence[Step]
    variables: _Variables

    def __post_init__(self) -> None:
        changed = {one.array for one in stores_in(self.steps)}
        self.own_values = self._own_values()
        self.definitions: Mapping[str, nodes.Expr] = repeatable_definitions(steps_in(self.steps), changed)

    def uses(
        self, body: Sequence[Step], names: Mapping[str, nodes.Expr], ranges: Mapping[str, nodes.Expr], *, is_sure: bool
    ) -> Iterator[_Use]:
        """Accesses of steps.

        Args:
            body: the steps.
            names: what variables of loops stand for.
            ranges: the same, where a loop that may end early stands for its whole range.
            is_sure: whether every iteration of the loops around them runs them.
        """
        for step in body:
            match step:
                case nodes.Assign(value=nodes.Load() as load):
                    yield _Use(load.array, self.place(load.index, names), self.place(load.index, ranges))
                case nodes.Atomic():
                    yield _Use(step.array, self.place(step.index, names), self.place(step.index, ranges))
                case nodes.Store():
                    place = self.place(step.index, names)
                    is_promise = is_sure and self.is_in_range(place) and self.is_own(step)
                    yield _Use(step.array, place, self.place(step.index, ranges), is_promise)
                case Branch():
                    yield from self.uses(step.body, names, ranges, is_sure=False)
                    yield from self.uses(step.orelse, names, ranges, is_sure=False)
                case Loop():
                    inner = self.inside(step, names)
                    whole = self.inside(step, ranges, is_whole=True)
                    if inner is None or whole is None:
                        yield from self.uses(step.body, names, ranges, is_sure=False)
                    else:
                        yield from self.uses(step.body, inner, whole, is_sure=is_sure)
                case _:
                    pass

    def inside(
        self, loop: Loop, names: Mapping[str, nodes.Expr], *, is_whole: bool = False
    ) -> dict[str, nodes.Expr] | None:
        """What a loop's variables stand for: the same as in another loop over the same range.

        A loop that ends early has not been everywhere: its range is its own, unless `is_whole`.
        """
        if not loop.names:
            return None
        found = dict(names)
        for name, pair in zip(loop.names, loop.bounds, strict=True):
            first, end = (self.steady(bound, names) for bound in pair)
            if loop.exit is not None and not is_whole:
                first = nodes.Local(name, "i32")
            found[name] = self.variables.over(first, end, found.values(), is_parallel=loop.is_parallel)
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
        variables = self.variables.inner
        loads = [part for expr in place for part in walk.parts(expr) if isinstance(part, nodes.Load)]
        return variables.isdisjoint(walk.locals_in(loads)) and not variables.isdisjoint(walk.locals_in(place))

    def is_own(self, store: nodes.Store) -> bool:
        """Whether iterations of the parallel loop that met here would leave a float by chance, each one of its own.

        Labels are another matter: somebody may not mind whose number stays.
        """
        return types.is_float(store.value.type) and not walk.locals_in([store.value]).isdisjoint(self.own_values)

    def _own_values(self) -> frozenset[str]:
        """Locals whose values the parallel loop's variable decides in other ways than by naming an element of a range.

        `w[first + j]` and `first + j` are none: another iteration that met here would have the same value.
        """
        inner = [step for step in steps_in(self.loop.body) if isinstance(step, Loop)]
        of_loop = self._dependents(inner, self.loop.names)
        moving = self._dependents(inner, [*(one for loop in inner for one in loop.names), *_heads(inner)])
        loaded = {
            step.name: walk.locals_in(step.value.index)
            for step in steps_in(self.loop.body)
            if isinstance(step, nodes.Assign) and isinstance(step.value, nodes.Load) and types.is_float(step.value.type)
        }
        loaded = {name: index for name, index in loaded.items() if not index.isdisjoint(of_loop)}
        read = self._dependents(inner, loaded)
        found = {name for name, index in loaded.items() if index.isdisjoint(moving)}
        for loop in inner:
            begins, bounds = [first for first, _ in loop.bounds], [one for pair in loop.bounds for one in pair]
            comes_from = not walk.locals_in(begins).isdisjoint(of_loop)
            # What a loop has gone through before it comes to a place, and what it has gone through in all.
            found |= {one.head for one in loop.carried if comes_from or not walk.locals_in([one.next]).isdisjoint(read)}
            if not walk.locals_in(bounds).isdisjoint(of_loop):
                found |= {one.last for one in loop.carried}
        return self._dependents(inner, found)

    def _dependents(self, inner: Sequence[Loop], names: Collection[str]) -> frozenset[str]:
        """Locals that depend on some, also from one iteration to the next of the loops inside."""
        found, before = frozenset(names), -1
        while before != len(found):
            before = len(found)
            for body in (self.loop.body, *(loop.body for loop in inner)):
                found |= find_dependents(body, found)
            carried = [one for loop in inner for one in loop.carried]
            found |= {one.head for one in carried if not walk.locals_in([one.first, one.next]).isdisjoint(found)}
        return found


def _heads(loops: Sequence[Loop]) -> set[str]:
    return {one.head for loop in loops for one in loop.carried}


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
