"""Records: what atomics returned in a parallel loop, kept by the forward pass so that others see the very same.

An index that an atomic hands out (`k = atomic_add(count[None], 1)`) depends on the order of the iterations. A second
run of the kernel, in a backward pass or for a tangent, hands out others. So a kernel becomes two: `recorded` keeps
what its atomics returned in an array, and `replayed`, which derivatives are made of, takes it from there. Each run of
each atomic has a place of its own in that array, which follows from sizes and arguments alone: a branch that is taken
the other way in another kernel, for the last bit of a number, moves nobody else's.

    k = atomic_add(count[0], 1)    ->    k = atomic_add(count[0], 1); kept[place] = k    recorded
                                         k = kept[place]; atomic_add(count[0], 1)        replayed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...analyses import concurrent_loop, definitions, shared_atomics, single_definitions
from ...ir import ZERO, Names, Type, cast, iteration_number, nodes, plus, times, types, walk
from .._evaluate import extent
from .._most_runs import most_runs
from .._slots import SlotAssignment, assign_slots, replace_statements

Change = Callable[[nodes.Atomic, nodes.Load], Sequence[nodes.Stmt]]


@dataclass(frozen=True)
class Records:
    """What a kernel's atomics return to parallel iterations, and room for it.

    Attributes:
        tasks: loops of the top level by their place in the body, each with the first place of its records and
            how many each of its iterations may need.
        size: how many there are in all.
        type: of the array that holds them: "i32" or "i64".
    """

    kernel: nodes.Kernel
    tasks: Mapping[int, tuple[nodes.Expr, nodes.Expr]]
    size: nodes.Expr
    type: Type

    def build_recording_kernel(self, name: str) -> nodes.Kernel:
        """Build the kernel that also writes what its atomics return into an array of this new name."""

        def change(one: nodes.Atomic, place: nodes.Load) -> Sequence[nodes.Stmt]:
            result = nodes.Local(one.result or "", self.kernel.arrays[one.array].type)
            return (one, nodes.Store(name, place.index, (), cast(result, self.type), one.line))

        return self._rewrite(name, change)

    def build_replaying_kernel(self, name: str) -> nodes.Kernel:
        """Build the kernel that takes what its atomics return from an array of this new name."""

        def change(one: nodes.Atomic, place: nodes.Load) -> Sequence[nodes.Stmt]:
            kind = self.kernel.arrays[one.array].type
            return (nodes.Assign(one.result or "", cast(place, kind), one.line), replace(one, result=None))

        return self._rewrite(name, change)

    def _rewrite(self, name: str, change: Change) -> nodes.Kernel:
        assert name not in walk.names_of(self.kernel), name
        names = Names({*walk.names_of(self.kernel), name})
        body = list(self.kernel.body)
        for place, (first, most) in self.tasks.items():
            loop = body[place]
            assert isinstance(loop, nodes.For)
            body[place] = replace(loop, body=self._iteration(name, loop, first, most, names, change))
        arrays = {**self.kernel.arrays, name: nodes.Array(name, self.type, 1)}
        return replace(
            self.kernel, arrays=arrays, locals={**self.kernel.locals, **names.types}, body=walk.number_statements(body)
        )

    def _iteration(
        self, name: str, loop: nodes.For, first: nodes.Expr, most: nodes.Expr, names: Names, change: Change
    ) -> nodes.Block:
        wanted = {one.number: one for one in _find_kept(self.kernel, loop)}
        slotted: SlotAssignment = assign_slots(loop.body, {key: one.result or "" for key, one in wanted.items()}, names)

        def change_atomic(one: nodes.Atomic) -> Sequence[nodes.Stmt]:
            return change(one, nodes.Load(name, (slotted.slots[one.number],), (), self.type))

        # Each iteration has room for all its atomics, whichever
        # branches it takes, so its place depends on no other one.
        start = plus(first, times(iteration_number(loop.names, loop.bounds), most))
        return (nodes.Assign(slotted.counter, start), *replace_statements(slotted.body, wanted, change_atomic))


def records_of(kernel: nodes.Kernel) -> Records | None:
    """Return what has to be kept of a kernel; None if there is nothing, or if only a run can tell how much."""
    # Both kernels find the atomics again by their numbers.
    kernel = replace(kernel, body=walk.number_statements(kernel.body))
    known = single_definitions(definitions(kernel.body))
    tasks: dict[int, tuple[nodes.Expr, nodes.Expr]] = {}
    total: nodes.Expr = ZERO
    kinds: set[str] = set()
    for place, task in enumerate(kernel.body):
        loop = concurrent_loop(task)
        wanted = [] if loop is None else [*_find_kept(kernel, loop)]
        if loop is None or not wanted:
            continue
        iterations = extent(loop.bounds, known)
        most = None if iterations is None else most_runs(loop.body, {one.number for one in wanted}, loop)
        # Room is made before the launch. Of a loop of unknown length
        # nothing is kept, and who reads its results is refused.
        if iterations is None or most is None:
            continue
        tasks[place] = total, most
        total = plus(total, times(iterations, most))
        kinds |= {types.keeping(kernel.arrays[one.array].type) for one in wanted}
    return Records(kernel, tasks, total, Type.I64 if Type.I64 in kinds else Type.I32) if tasks else None


def _find_kept(kernel: nodes.Kernel, loop: nodes.For) -> Iterator[nodes.Atomic]:
    """Yield the atomics whose results are kept: those on integers.

    What one on floats returns has a derivative, which depends on the order of the iterations, too.
    """
    return (one for one in find_used_results(loop) if not types.is_float(kernel.arrays[one.array].type))


def find_used_results(loop: nodes.For) -> Iterator[nodes.Atomic]:
    """Yield the atomics of a parallel loop whose result is used, on elements that several iterations change."""
    used = walk.find_read(loop.body)
    return (one for one in shared_atomics(loop) if one.result in used)
