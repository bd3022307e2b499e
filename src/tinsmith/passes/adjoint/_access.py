"""How a task uses memory: which elements are an iteration's own, what an atomic leaves, what is not read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..._lazy import lazy
from ...analyses import definitions, find_owned_by, whole_definitions
from ...ir import RUN_IN_ORDER, Names, NotCovered, nodes, operators, types, walk
from ..polish import is_atomic_addition
from ._ssa import Step, parallel_loop


def find_owned(steps: Sequence[Step]) -> frozenset[str]:
    """Return the arrays whose elements are each touched by at most one parallel iteration, according to the indices."""
    accesses = (*walk.loads(steps), *walk.stores(steps))
    parallel = parallel_loop(steps)
    # One thread runs a serial task, so whatever it touches is its own.
    if parallel is None:
        return frozenset(one.array for one in accesses)
    return find_owned_by(parallel.names, parallel.bounds, accesses, whole_definitions(definitions(steps)))


def order_atomics(
    steps: Sequence[Step],
    arrays: Mapping[str, nodes.Array],
    own: frozenset[str],
    find_disjoint: Callable[[], frozenset[str]],
    names: Names,
    path: str,
    races: Mapping[str, NotCovered],
) -> tuple[tuple[Step, ...], Mapping[str, NotCovered]]:
    """Rewrite each atomic whose old or new value matters as a load and a store.

    Also return the arrays that stand for integers which only the forward pass knew. Whoever reads one is refused with
    the error that belongs to it.
    `races` are the refusals of `find_races`; `find_disjoint` returns arrays no element of which one iteration changes
    and another one touches.

    Raises:
        NotCovered: one whose value has a gradient changes what other parallel iterations change too.
    """
    loaded = frozenset(walk.find_loaded(steps))
    ordering = _Ordering(loaded, _find_used_in_order(steps), arrays, own, find_disjoint, names, path, races)
    return walk.rewrite(steps, ordering.step), ordering.unknown


def _find_used_in_order(steps: Sequence[Step]) -> frozenset[str]:
    """Return the arrays from which a step reads: by a load, or by an atomic that is not just an addition.

    All changes of such an array must be seen in their order, sums too.
    """
    atomics = (one for one in walk.stores(steps) if isinstance(one, nodes.Atomic) and not is_atomic_addition(one))
    return frozenset(walk.find_loaded(steps) | {one.array for one in atomics})


@dataclass
class _Ordering:
    loaded: frozenset[str]
    in_order: frozenset[str]
    arrays: Mapping[str, nodes.Array]
    own: frozenset[str]
    find_disjoint: Callable[[], frozenset[str]]
    names: Names
    path: str
    races: Mapping[str, NotCovered]
    unknown: dict[str, NotCovered] = field(default_factory=dict)

    @lazy
    def _disjoint(self) -> frozenset[str]:
        return self.find_disjoint()

    def step(self, one: Step) -> Sequence[Step]:
        if not isinstance(one, nodes.Atomic) or (is_atomic_addition(one) and one.array not in self.in_order):
            return [one]
        # A load and a store may stand for an atomic only if no other iteration can come between the two.
        if one.array not in self.own and one.array not in self._disjoint:
            return self.expand_shared_atomic(one)
        kind = self.arrays[one.array].type
        old = one.result or self.names.fresh(f"{one.array}_at", kind)
        new = self.names.fresh(f"{one.array}_new", kind)
        load = nodes.Load(one.array, one.index, one.entry, kind)
        value = nodes.Binary(operators.ATOMIC[one.operator], nodes.Local(old, kind), one.value, kind)
        return [
            nodes.Assign(old, load, one.line),
            nodes.Assign(new, value, one.line),
            nodes.Store(one.array, one.index, one.entry, nodes.Local(new, kind), one.line),
        ]

    def expand_shared_atomic(self, one: nodes.Atomic) -> list[Step]:
        """Rewrite an atomic on what other parallel iterations change too: its result depends on their order."""
        kind = self.arrays[one.array].type
        before: list[Step] = []
        if one.result is not None:
            reason = self.make_refusal(
                (
                    f"the return value of atomic_{one.operator} in a parallel loop, which "
                    "depends on the order of the iterations"
                ),
                one,
            )
            if types.is_float(kind):
                raise reason
            # Most often integers find a place for other integers, and no adjoint asks for them.
            name = self.names.reserve_shared(f"unknown_{one.result}")
            self.unknown[name] = reason
            before = [nodes.Assign(one.result, nodes.Load(name, (), (), kind), one.line)]
        if one.array in self.races:
            raise self.races[one.array]
        # A load sees the changes of those iterations that happened to
        # run before it. No second run sees the same ones.
        if one.array in self.loaded:
            raise self.make_refusal(
                f"a read of `{one.array}` in the parallel loop that changes it by atomic_{one.operator}", one
            )
        return [*before, replace(one, result=None)]

    def make_refusal(self, construct: str, one: nodes.Atomic) -> NotCovered:
        return NotCovered(construct, one.line, self.path, remedy=RUN_IN_ORDER)


def find_unread_stores(body: Sequence[Step]) -> set[int]:
    """Return the numbers of stores after which the frame does not read the array: they need not be made and undone."""
    loops = [one for one in walk.frame_statements(body) if isinstance(one, nodes.Loop)]
    # Inner loops run forward once more when they are reversed, so what they touch counts as read after any store.
    loaded, numbers = walk.find_touched(loops), set[int]()
    for step in reversed([*walk.frame_statements(body)]):
        if isinstance(step, nodes.Store) and step.array not in loaded:
            numbers.add(step.number)
        loaded |= walk.find_loaded([step])
    return numbers
