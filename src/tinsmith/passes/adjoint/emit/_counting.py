"""How much tape an iteration needs: a formula where trip counts are known before the launch, else a counting kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....analyses import expand
from ....ir import Names, Operator, Type, cast, constant, integer, nodes, plus, times, types, walk
from ..._evaluate import can_evaluate, extent
from .._plan import LoopPlan
from .._ssa import Step
from .._tapes import Tape, array_key
from ._forward_copy import ForwardCopy, Renamed

Block = list[nodes.Stmt]
Need = dict[str, nodes.Expr]
"""Entries by the key of their tape."""


def count_pushes(kept: LoopPlan, names: Names) -> dict[str, int]:
    """Count the entries that each iteration of a loop puts on the tapes of numbers."""
    counts: dict[str, int] = {}
    for kind in (
        *(names.types[name] for name in kept.taped),
        # An iteration marks where its part of a log starts
        # (`LoopReversal.run_loop`). Regular logs know that by their count.
        *(Type.I32 for array in kept.logged if array not in kept.regular),
    ):
        key = types.keeping(kind)
        counts[key] = counts.get(key, 0) + 1
    return counts


# A formula --------------------------------------------------------------------------------------


@dataclass
class Formula:
    """Computes what an iteration of a task needs, from sizes and arguments alone."""

    names: Names
    records: Mapping[int, LoopPlan]
    definitions: dict[str, nodes.Expr]

    def need(self, body: Sequence[Step]) -> Need | None:
        """Return how many entries a frame needs at most; None if only a run can tell."""
        total: Need = {}
        for step in walk.frame_statements(body):
            if not isinstance(step, nodes.Loop):
                continue
            inner = self.need(step.body)
            own = self.loop(step)
            if inner is None or own is None:
                return None
            # The need of one iteration is added once, not for each: when an iteration is reversed, its inner loops
            # run again and take back what they kept before the next one does.
            total = _add_needs(total, _add_needs(own, inner))
        return total

    def loop(self, loop: nodes.Loop) -> Need | None:
        """Return how many entries a loop's own run puts on tapes; None if only a run can tell."""
        kept = self.records[loop.number]
        counts: Need = {key: constant(count, Type.I32) for key, count in count_pushes(kept, self.names).items()}
        for array in kept.logged:
            stores = self.stores(loop.body, array)
            if stores is None:
                return None
            counts[array_key(array)] = stores
        if not counts:
            return {}
        trips = self.trips(loop)
        return None if trips is None else {key: times(trips, count) for key, count in counts.items()}

    def trips(self, loop: nodes.Loop) -> nodes.Expr | None:
        if loop.most is not None:
            # A loop that checkpoints made has a bound, even if it may end early.
            most = expand(loop.most, set(), self.definitions)
            return most if most is not None and can_evaluate(most) else None
        if not loop.names or loop.exit is not None:
            return None
        return extent(loop.bounds, self.definitions)

    def stores(self, body: Sequence[Step], array: str) -> nodes.Expr | None:
        """Return how often an iteration changes an array, at most; None if only a run can tell."""
        total: nodes.Expr = constant(0, Type.I32)
        for step in walk.frame_statements(body):
            if isinstance(step, nodes.Store | nodes.Atomic) and step.array == array:
                # Both arms of a branch count, since only a run knows which one is taken.
                total = plus(total, constant(1, Type.I32))
            if isinstance(step, nodes.Loop) and array in walk.find_changed(step.body):
                inner, trips = self.stores(step.body, array), self.trips(step)
                if inner is None or trips is None:
                    return None
                total = plus(total, times(trips, inner))
        return total


def _add_needs(one: Need, other: Need) -> Need:
    zero = constant(0, Type.I32)
    return {key: plus(one.get(key, zero), other.get(key, zero)) for key in {**one, **other}}


# A kernel ---------------------------------------------------------------------------------------


@dataclass
class Counting:
    """Writes the statements that count what one iteration needs."""

    names: Names
    records: Mapping[int, LoopPlan]
    tapes: Mapping[str, Tape]
    state: frozenset[str]
    need: dict[str, str] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)

    def count_frame(self, body: Sequence[Step]) -> tuple[Block, dict[str, str]]:
        """Write statements that run a frame, and return them with the locals that count its entries, by tape."""
        self.need = self.fresh("need")
        logs = [tape for tape in self.tapes.values() if tape.of]
        self.done = {tape.key: self.names.fresh(f"changes_{tape.label}", Type.I32) for tape in logs}
        total = dict(self.need)
        plain = _CountingPlain(self)
        return [*self.zeros(self.need), *self.zeros(self.done), *plain.block(body, {})], total

    def fresh(self, word: str) -> dict[str, str]:
        return {key: self.names.fresh(f"{word}_{tape.label}", Type.I32) for key, tape in self.tapes.items()}

    def zeros(self, locals_: Mapping[str, str]) -> Block:
        return [nodes.Assign(name, constant(0, Type.I32)) for name in locals_.values()]

    def count_change(self, store: nodes.Store | nodes.Atomic, _: Renamed) -> Block:
        """Copy a store or atomic; if its array is logged, count one more entry of the log before it."""
        if store.array not in self.state:
            return []
        done = self.done.get(array_key(store.array))
        return [store] if done is None else [_more(done, constant(1, Type.I32)), store]


class _CountingPlain(ForwardCopy):
    def __init__(self, counting: Counting) -> None:
        super().__init__(counting.names, counting.count_change)
        self.counting = counting

    def step(self, step: Step, renamed: Renamed) -> Block:
        return self.count_loop(step, renamed) if isinstance(step, nodes.Loop) else super().step(step, renamed)

    def count_loop(self, loop: nodes.Loop, renamed: Renamed) -> Block:
        """Write a loop that counts what its iterations put on tapes, and the most that one needs to be reversed."""
        counting = self.counting
        outer, inner, most, before = counting.need, *(counting.fresh(word) for word in ("inner", "most", "before"))
        kept = counting.records[loop.number]
        entries = count_pushes(kept, self.names).items()
        # Not of tapes that the reverse has no use for.
        each = [_more(outer[key], constant(count, Type.I32)) for key, count in entries if key in outer]
        counting.need = inner
        # One iteration is reversed at a time, so of what they need the maximum counts, and not the sum.
        tail: Block = [
            nodes.Assign(name, integer(Operator.MAX, _i32(name), _i32(inner[key]))) for key, name in most.items()
        ]
        body = self.loop(loop, renamed, lambda _: [*each, *counting.zeros(inner)], lambda _: tail)
        counting.need = outer
        # Changes are counted once for all loops, so a loop's own are those between its start and its end.
        begun = [nodes.Assign(before[key], _i32(done)) for key, done in counting.done.items()]
        after = [_more(outer[key], _i32(most[key])) for key in outer]
        logged = [key for key in map(array_key, kept.logged) if key in counting.done]
        after += [
            _more(outer[key], integer(Operator.SUB, _i32(counting.done[key]), _i32(before[key]))) for key in logged
        ]
        return [*counting.zeros(most), *begun, *body, *after]


def _i32(name: str) -> nodes.Local:
    return nodes.Local(name, Type.I32)


def _more(name: str, value: nodes.Expr) -> nodes.Stmt:
    return nodes.Assign(name, plus(_i32(name), cast(value, Type.I32)))
