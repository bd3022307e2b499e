"""Segments that do not overlap, as the kernels' own stores say: `for s in range(start[r], start[r + 1]): y[s] = ...`.

Nothing in the text of `w[s]` tells that the samples of two rays are different elements. But where each iteration of a
parallel loop stores a value of its own to `y[s]`, without an atomic, two iterations that met there would race. So the
kernel says that they do not meet, and an array that it uses at the same places alone needs no atomics in the adjoint.

A value is an iteration's own only where the text shows it: an element at an index that differs in each iteration
(`v[r]`, not `v[r // 2]` or `v[k[r]]`), or what a loop has gone through in a segment whose first place differs in each
(`3 * r`). A place that memory holds, `start[r]`, may be the same for two rays: both would go through the same samples
and store the same values, which is not a race. Only the spec can say that they differ (`_promises`).

What one kernel of an op says holds in the others, where the places follow from memory that none of them changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..._lazy import lazy
from ...source import each_moves_an_axis
from ...source.ir import nodes, types, walk
from ..analysis import (
    Expander,
    affine,
    definitions,
    find_operands,
    find_reachable,
    is_invariant,
    moving_variables,
    sources,
    whole_definitions,
)
from ._ssa import Step, collect_expressions, parallel_loop, repeatable_definitions

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
    changed = frozenset[str]().union(*map(walk.find_changed, tasks))
    variables = _Variables(changed)
    uses = [_uses(steps, variables) for steps in tasks]
    promised = [{use.place for use in task_uses if use.is_promise} for task_uses in uses]
    everywhere = {place for places in promised for place in places if variables.is_known_everywhere(place)}
    return [_never_shared(task_uses, places | everywhere) for task_uses, places in zip(uses, promised, strict=True)]


def _uses(steps: Sequence[Step], variables: _Variables) -> list[_Use]:
    loop = parallel_loop(steps)
    if loop is None:
        return []
    reading = _Reading(loop, steps, variables)
    names = reading.inside(loop, reading.memory)
    return [] if names is None else list(reading.uses(loop.body, names, names, reading.memory, is_sure=True))


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
        names: the variables of ranges: of parallel loops, and of loops inside, the outermost first.
        everywhere: those whose range is the same in all tasks.
    """

    changed: frozenset[str]
    names: dict[tuple[nodes.Expr, nodes.Expr, bool, int], str] = field(default_factory=dict)
    everywhere: set[str] = field(default_factory=set)

    def over(
        self, first: nodes.Expr, end: nodes.Expr, taken: Collection[nodes.Expr], *, is_parallel: bool
    ) -> nodes.Local:
        """The variable of a range; loops in one another over the same range have different ones."""
        for number in range(len(taken) + 1):
            name = f"variable {len(self.names)}"
            variable = nodes.Local(self.names.setdefault((first, end, is_parallel, number), name), "i32")
            if variable.name == name and self.is_known_everywhere((first, end)):
                self.everywhere.add(name)
            if variable not in taken:
                return variable
        raise AssertionError("more variables are taken than there are")

    def is_known_everywhere(self, place: Place) -> bool:
        """Whether expressions have the same values in all tasks: no launch has arguments of its own in them."""
        return walk.locals_in(place) <= self.everywhere and not any(
            isinstance(part, nodes.Argument) or (isinstance(part, nodes.Load) and part.array in self.changed)
            for part in walk.parts(*place)
        )

    @property
    def inner(self) -> set[str]:
        """Variables of loops inside parallel ones."""
        return {name for (_, _, is_parallel, _), name in self.names.items() if not is_parallel}


@dataclass
class _Reading:
    """Collects the accesses of a parallel loop."""

    loop: nodes.Loop
    steps: Sequence[Step]
    variables: _Variables

    def __post_init__(self) -> None:
        changed = walk.find_changed(self.steps)
        self.definitions: Mapping[str, nodes.Expr] = repeatable_definitions(walk.statements(self.steps), changed)
        self.memory = Expander(self.definitions)

    def uses(
        self,
        body: Sequence[Step],
        names: Expander,
        ranges: Expander,
        begins: Expander,
        *,
        is_sure: bool,
    ) -> Iterator[_Use]:
        """Accesses of steps.

        Args:
            body: the steps.
            names: expressions as far as memory that does not change tells them, by what variables of loops stand for.
            ranges: the same, where a loop that may end early stands for its whole range.
            begins: the same, where the variables of loops inside the parallel one stand for where they begin.
            is_sure: whether every iteration of the loops around them runs them.
        """
        for step in body:
            match step:
                case nodes.Assign(value=nodes.Load() as load):
                    yield _Use(load.array, _place(load.index, names), _place(load.index, ranges))
                case nodes.Atomic():
                    yield _Use(step.array, _place(step.index, names), _place(step.index, ranges))
                case nodes.Store():
                    place = _place(step.index, names)
                    is_promise = is_sure and self.is_in_range(place) and self.is_own(step, begins)
                    yield _Use(step.array, place, _place(step.index, ranges), is_promise)
                case nodes.If():
                    yield from self.uses(step.body, names, ranges, begins, is_sure=False)
                    yield from self.uses(step.orelse, names, ranges, begins, is_sure=False)
                case nodes.Loop():
                    inner = self.inside(step, names)
                    whole = self.inside(step, ranges, is_whole=True)
                    first = self.begins(step, begins)
                    if inner is None or whole is None:
                        yield from self.uses(step.body, names, ranges, first, is_sure=False)
                    else:
                        yield from self.uses(step.body, inner, whole, first, is_sure=is_sure)
                case _:
                    pass

    def inside(self, loop: nodes.Loop, names: Expander, *, is_whole: bool = False) -> Expander | None:
        """What a loop's variables stand for: the same as in another loop over the same range.

        A loop that ends early has not been everywhere: its range is its own, unless `is_whole`.
        """
        if not loop.names:
            return None
        meanings = dict(names.meanings)
        for name, pair in zip(loop.names, loop.bounds, strict=True):
            first, end = map(names, pair)
            if loop.exit is not None and not is_whole:
                first = nodes.Local(name, "i32")
            meanings[name] = self.variables.over(first, end, meanings.values(), is_parallel=loop.is_parallel)
        return names.with_meanings(meanings)

    def is_in_range(self, place: Place) -> bool:
        """Whether a place is one of a range's, and not found by a list of places, which may name one twice."""
        variables = self.variables.inner
        loads = [part for part in walk.parts(*place) if isinstance(part, nodes.Load)]
        return variables.isdisjoint(walk.locals_in(loads)) and not variables.isdisjoint(walk.locals_in(place))

    def is_own(self, store: nodes.Store, begins: Expander) -> bool:
        """Whether iterations of the parallel loop that met here would leave a float by chance, each one of its own.

        Labels are another matter: somebody may not mind whose number stays.

        Args:
            store: the store.
            begins: expressions where the loops around it begin.
        """
        begin = [*map(begins, store.index)]
        named = find_operands(walk.locals_in(store.index), self.definitions)
        # Two segments that overlap have the first place of one of them in both. The one that begins there has gone
        # through nothing, the other one has.
        loops = [loop for loop in self.loops if not named.isdisjoint(loop.names)]
        heads = [one.head for loop in loops for one in loop.carried] if self.differs(begin) else []
        return not self._own_values(heads).isdisjoint(sources(store.value))

    def differs(self, index: Sequence[nodes.Expr]) -> bool:
        """Whether any two iterations of the parallel loop have different indices: each of its variables moves an axis.

        `index` is one without variables of loops inside.
        """
        sums = [affine(one, {}) for one in index]
        return all(any(one.moves_with(variable, is_invariant) for one in sums) for variable in self._variables)

    @lazy
    def _variables(self) -> list[str]:
        """The parallel loop's variables that have more than one value."""
        return moving_variables(self.loop.names, self.loop.bounds)

    @lazy
    def loops(self) -> list[nodes.Loop]:
        """Loops inside the parallel one."""
        return [one for one in walk.statements(self.loop.body) if isinstance(one, nodes.Loop)]

    @lazy
    def chains(self) -> list[nodes.CarriedLocal]:
        """What loops inside hand on."""
        return [one for loop in self.loops for one in loop.carried]

    @lazy
    def loads(self) -> list[tuple[str, nodes.Load, list[nodes.Expr]]]:
        """Locals that are loaded floats, each with the load, and its index where the loops inside begin."""
        return [*self._loads(self.loop.body, self.memory)]

    def _loads(self, body: Sequence[Step], begins: Expander) -> Iterator[tuple[str, nodes.Load, list[nodes.Expr]]]:
        for step in body:
            match step:
                case nodes.Assign(value=nodes.Load() as load) if types.is_float(load.type):
                    yield step.name, load, [*map(begins, load.index)]
                case nodes.If():
                    yield from self._loads(step.body, begins)
                    yield from self._loads(step.orelse, begins)
                case nodes.Loop():
                    yield from self._loads(step.body, self.begins(step, begins))
                case _:
                    pass

    def begins(self, loop: nodes.Loop, outer: Expander) -> Expander:
        """Expressions where a loop begins, and those around it."""
        firsts = (outer(first) for first, _ in loop.bounds)
        return outer.with_meanings(dict(zip(loop.names, firsts, strict=False)))

    def _own_values(self, heads: Collection[str]) -> set[str]:
        """Locals of floats that have a value of its own in each iteration of the parallel loop.

        `w[first + j]` and `first + j` have none: another iteration that met here would have the same. Nor has what
        only asks for such a value, `v[r] > 0`: many have the same answer. "Of its own" is for values in general: two
        elements of an array may be equal, but no kernel counts on that.

        Args:
            heads: what loops hand on that is known to be.
        """
        known = whole_definitions(definitions(self.loop.body))
        own, gathered = {*heads}, set[str]()
        for name, load, begin in self.loads:
            if each_moves_an_axis(self._variables, [[affine(one, known) for one in load.index]], is_invariant):
                own.add(name)
            elif self.differs(begin):
                gathered.add(name)  # another iteration may have it too, but not the sum over the whole segment
        given = collect_expressions(self.loop.body)
        edges = [(source, name) for name, values in given.items() for value in values for source in sources(value)]
        within = find_reachable(
            gathered, [*edges, *((one, chain.head) for chain in self.chains for one in sources(chain.next))]
        )
        own |= {chain.last for chain in self.chains if not within.isdisjoint(sources(chain.next))}
        for chain in self.chains:
            edges += [(one, name) for name in (chain.head, chain.last) for one in sources(chain.first)]
            edges += [(one, chain.last) for one in sources(chain.next)]
        return find_reachable(own, edges)


def _place(index: Sequence[nodes.Expr], names: Expander) -> Place:
    return tuple(_in_order(names(one)) for one in index)


def _in_order(expr: nodes.Expr) -> nodes.Expr:
    """A sum with its terms in one order: `start + j` and `j + start` are one place."""
    index = affine(expr, {})
    terms: list[tuple[nodes.Expr, int]] = []
    for part, factor in index.terms.items():
        terms.append((nodes.Local(part, "i32") if isinstance(part, str) else part, factor))
    total: nodes.Expr = nodes.Const(index.constant, "i32")
    for part, factor in sorted(terms, key=repr) if len(terms) > 1 else terms:
        total = nodes.Binary("+", total, nodes.Binary("*", nodes.Const(factor, "i32"), part, "i32"), "i32")
    return total
