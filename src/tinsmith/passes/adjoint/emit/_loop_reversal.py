"""The reverse of the loops in a frame, as planned.

A loop in a frame runs forward too, and keeps on a tape what each iteration was handed, as far as the reverse needs it
and cannot compute it backwards. When the loop is reversed, each iteration takes that back, and is a frame of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ....ir import FALSE, Names, Operator, Type, compare, constant, minus, nodes, opposite, or_else, plus, times, walk
from ..._slots import trips_of
from .._plan import PLAIN_LOOP, LoopPlan
from .._regular_logs import RegularLog
from .._tapes import Tape, Tapes, array_key
from .._tasks import Task
from ._accumulators import find_accumulators
from ._counting import count_pushes
from ._forward_copy import ForwardCopy, Renamed
from ._frame_reversal import Block, FrameReversal, TurnedFrame
from ._inverses import Rerun, plan_rerun
from ._loop_results import LoopResults

Chooser = Callable[["LoopReversal", nodes.Loop, TurnedFrame, int], LoopPlan]
"""Returns the plan of a loop, given the reversed frame of an iteration, and how many locals were known before it."""


@dataclass
class LoopReversal:
    """Writes the reverse of the loops of one task, as planned.

    Attributes:
        frames: writes the frames.
        choose: returns the plan of a loop.
        plans: the plans of loops by number, as far as they have been reversed.
        trips: locals that count how often loops ran, where only a run can tell.
        ends: by loop, conditions that end it, with the local that says whether it did, and the truth that ends it.
        results: what loops of the task's own frame leave, where the forward pass keeps it.
        guarded: keys of the tapes on which a loop may need more room than was counted.
        limits: locals that say where an iteration's part of a guarded tape ends, by key.
        fits: locals that say whether tapes had room for a loop over several variables, by loop.
    """

    frames: FrameReversal
    choose: Chooser
    tapes: Tapes = field(init=False)
    plans: dict[int, LoopPlan] = field(default_factory=dict)
    trips: dict[int, str] = field(default_factory=dict)
    ends: dict[int, Mapping[str, tuple[str, bool]]] = field(default_factory=dict)
    results: LoopResults | None = None
    guarded: frozenset[str] = frozenset()
    limits: dict[str, nodes.Local] = field(default_factory=dict)
    fits: dict[int, nodes.Local] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start with empty tapes."""
        self.tapes = Tapes(self.frames.names)
        self.frames.loops = self

    @property
    def task(self) -> Task:
        """Return the task."""
        return self.frames.task

    @property
    def names(self) -> Names:
        """Return the names of this reverse."""
        return self.frames.names

    # Forward ----------------------------------------------------------------------------------

    def forward_loop(self, loop: nodes.Loop) -> Block:
        """Write a loop that runs forward, or the loads of what the forward pass kept of it."""
        if self.results is None or not self.plans[loop.number].may_be_kept:
            return self.run_loop(loop)
        ended = [local for local, _ in self.ends[loop.number].values()]
        left = [one.last for one in loop.carried], self.trips.get(loop.number), ended
        return (
            [*self.run_loop(loop), *self.results.store(*left)]
            if self.frames.is_forward_pass
            else self.results.load(*left)
        )

    def run_loop(self, loop: nodes.Loop) -> Block:
        """Write a loop that runs forward and keeps what is planned."""
        kept = PLAIN_LOOP if self.frames.is_forward_pass else self.plans[loop.number]
        plain = ForwardCopy(self.names, lambda store, inner: self.log_store(loop, store, inner))
        # The frame goes on reading what the loop hands on, so that keeps its name; all else is the copy's own.
        renamed: Renamed = {one.last: nodes.Local(one.last, self.names.types[one.last]) for one in loop.carried}

        def head(inner: Renamed) -> Block:
            statements: Block = []
            if loop.number not in self.fits and (is_full := self.find_full_tape(kept, inner)) != FALSE:
                statements.append(nodes.If(is_full, (nodes.Break(),)))
            # `restore_kept` pops in the opposite order.
            for name in kept.taped:
                now = inner[name]
                assert isinstance(now, nodes.Local)
                statements += self.tapes.push(now)
            for array in kept.logged:
                if array not in kept.regular:
                    statements += self.tapes.push(self.tapes.top_of(self.task.kernel.arrays[array]))
            return statements

        trips = self.trips.get(loop.number)
        ends = self.ends[loop.number]
        begun = [] if trips is None else [nodes.Assign(trips, constant(0, Type.I32))]
        begun += [nodes.Assign(ended, FALSE) for ended, _ in ends.values()]

        def tail(inner: Renamed) -> Block:
            statements: Block = []
            plan = self.plans[loop.number]
            if self.results is not None and self.frames.is_forward_pass and plan.may_be_kept:
                statements += self.results.store_entries(loop, (*plan.taped, *plan.functions), inner)
            if trips is not None:
                statements.append(nodes.Assign(trips, plus(nodes.Local(trips, Type.I32), constant(1, Type.I32))))
            for array, log in kept.regular.items():
                # An iteration has filled all its places, so the top moves once.
                top = self.tapes.top_of(self.task.kernel.arrays[array])
                statements.append(nodes.Assign(top.name, plus(top, walk.substitute(log.count, inner))))
            for condition, (ended, truth) in ends.items():
                held = walk.substitute(nodes.Local(condition, Type.U1), inner)
                statements.append(nodes.Assign(ended, held if truth else opposite(held)))
            return statements

        statements = plain.loop(loop, renamed, head, tail)
        fits = None if self.frames.is_forward_pass else self.fits.get(loop.number)
        if fits is not None:
            is_full = self.find_full_tape(kept, {}, trips_of(loop.bounds))
            begun.append(nodes.Assign(fits.name, opposite(is_full)))
            statements = [nodes.If(fits, (one,)) if isinstance(one, nodes.For) else one for one in statements]
        return [*begun, *statements]

    def find_full_tape(self, kept: LoopPlan, renamed: Renamed, trips: nodes.Expr | None = None) -> nodes.Expr:
        """Return the condition that a guarded tape lacks room for an iteration of a loop, or for `trips` of them.

        The counting kernel and the adjoint compute the same numbers, but compilers may round them differently: one in
        machine vectors, with functions in plain arithmetic, the other not; or with a multiplication and an addition
        fused in one of them. Where a condition hangs on the last digit, the adjoint may want to run a step that was not
        counted. It ends the loop instead: behind its part of the tape lies another iteration's.
        """
        counts: dict[str, nodes.Expr] = {
            key: constant(count, Type.I32) for key, count in count_pushes(kept, self.names).items()
        }
        # Irregular logs are guarded at each store (`log_store`).
        counts |= {array_key(array): walk.substitute(log.count, renamed) for array, log in kept.regular.items()}
        condition: nodes.Expr = FALSE
        for key in sorted(counts.keys() & self.guarded):
            count = counts[key] if trips is None else times(trips, counts[key])
            filled = plus(self.tapes.by_key[key].top, count)
            condition = or_else(condition, compare(Operator.GT, filled, self.find_limit(key)))
        return condition

    def find_limit(self, key: str) -> nodes.Local:
        """Return the local that says where an iteration's part of a guarded tape ends; create it at first request."""
        if key not in self.limits:
            self.limits[key] = self.names.local(f"end_{self.tapes.by_key[key].label}", Type.I32)
        return self.limits[key]

    def log_store(self, loop: nodes.Loop, store: nodes.Store | nodes.Atomic, renamed: Renamed) -> Block:
        """Write a store of a loop that runs forward; where the reverse needs it, first log the value overwritten."""
        kept = self.plans[loop.number]
        if self.frames.is_forward_pass:
            return [store]
        if store.array not in self.frames.state or kept.is_idle:
            return []
        if store.array not in kept.logged:
            return [store]
        tape = self.tapes.for_array(self.task.kernel.arrays[store.array])
        if store.array not in kept.regular:
            log = self.tapes.log(tape, store.index, store.line)
            if tape.key in self.guarded:
                has_room = compare(Operator.LT, tape.top, self.find_limit(tape.key))
                log = [nodes.If(has_room, tuple(log))]
            return [*log, store]
        place = walk.substitute(kept.regular[store.array].stores[store.number].place, renamed)
        old = nodes.Load(store.array, store.index, store.entry, tape.type)
        return [nodes.Store(tape.array, (tape.slot(place),), (), old, store.line), store]

    # Backwards ---------------------------------------------------------------------------------

    def reverse_loop(self, loop: nodes.Loop) -> Block:
        """Write the reverse of a loop: its iterations from the last to the first."""
        frames = self.frames
        active = [one for one in loop.carried if one.last in self.task.activity or one.head in self.task.activity]
        if not loop.names or loop.exit is not None:
            self.trips[loop.number] = self.names.fresh("trips", Type.I32)
        known = len(self.names.types)
        # Sums first: what only adds to a local needs no adjoint that moves from one iteration to the next.
        sums = find_accumulators(loop) if active else {}
        for one in active:
            frames.share_adjoint(sums.get(one.head, ()), one.last)
        moved = [one for one in active if one.head not in sums]
        for one in moved:
            frames.adjoint(one.head)
        handed = [(frames.adjoint(one.last).name, one.next) for one in moved]
        inner = frames.frame(loop.body, (*loop.names, *(one.head for one in loop.carried)), handed)
        inner.backwards.extend(nodes.Assign(frames.adjoint(one.last).name, frames.adjoint(one.head)) for one in moved)
        # Chosen only now: a plan depends on what the reversed iteration reads.
        plan = self.plans[loop.number] = self.choose(self, loop, inner, known)
        if loop.number not in self.trips and self.guarded & {
            *count_pushes(plan, self.names),
            *map(array_key, plan.regular),
        }:
            # A loop that a full tape may end is reversed from where it ended.
            if len(loop.names) == 1:
                self.trips[loop.number] = self.names.fresh("trips", Type.I32)
            else:
                self.fits[loop.number] = self.names.local("fits", Type.U1)
        rerun = self.plan_rerun(loop, plan.inverted)
        inverses = rerun.inverses if rerun else ()
        self.ends[loop.number] = rerun.ends if rerun else {}
        forward = self.rerun(rerun) if rerun else inner.forward
        if self.results is not None and plan.may_be_kept:
            forward = without_locals(forward, plan.functions)
        # What this iteration was handed is what the one before it handed on.
        last = [nodes.Assign(one.now, nodes.Local(one.carried.head, one.type)) for one in inverses]
        body = [*self.restore_kept(loop), *forward, *inner.backwards, *last]
        is_ordered = bool(plan.heads or plan.logged or moved) or self.overwrites(loop)
        statements: Block = [nodes.Assign(one.now, nodes.Local(one.carried.last, one.type)) for one in inverses]
        backwards = self.backwards(loop, body, is_ordered=is_ordered)
        fits = self.fits.get(loop.number)
        statements.append(backwards if fits is None else nodes.If(fits, (backwards,)))
        # By now the adjoint of `last` is that of the first iteration's head, so it belongs to what the loop began with.
        for one in active:
            statements += frames.propagate_adjoint(one.first, frames.adjoint(one.last))
        return statements

    def plan_rerun(self, loop: nodes.Loop, heads: Sequence[str]) -> Rerun | None:
        """Plan how an iteration runs again, with as many of these heads as possible computed backwards."""
        return plan_rerun(loop, heads, self.names, self.frames.state, self.task.expressions)

    def rerun(self, rerun: Rerun) -> Block:
        """Write an iteration that runs forward and computes its heads backwards, by what does not depend on them."""
        statements: Block = []
        for stage in rerun.stages:
            statements += self.frames.forward(stage.steps)
            statements += [statement for one in stage.inverses for statement in one.statements]
        # Only the last iteration, which is reversed first, can have ended the loop.
        never = [nodes.Assign(ended, FALSE) for ended, _ in rerun.ends.values()]
        return [*statements, *self.frames.forward(rerun.rest), *never]

    def overwrites(self, loop: nodes.Loop) -> bool:
        """Return True if an iteration may store where an earlier one did: the later one must take the adjoint first."""
        once, unordered = self.task.once, self.find_unordered_sums(loop)
        stores = (one for one in walk.stores(loop.body) if isinstance(one, nodes.Store))
        ordered = (one for one in stores if one.number not in once and one.number not in unordered)
        return any(one.array in self.task.gradients for one in ordered)

    def find_unordered_sums(self, loop: nodes.Loop) -> set[int]:
        """Return the sums in place on arrays that a loop reads for nothing else: their reverse may run in any order."""
        loads = (
            one
            for one in walk.statements(loop.body)
            if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Load)
        )
        read = walk.reads([one for one in loads if one.name not in self.frames.summands])
        stores = (
            one for one in walk.stores(loop.body) if one.number in self.frames.sums_in_place and one.array not in read
        )
        return {one.number for one in stores}

    def restore_kept(self, loop: nodes.Loop) -> Block:
        """Write the start of a reversed iteration, which restores the state that the iteration started with.

        It undoes logged stores to arrays and pops locals from tapes, the last one first.
        """
        kept = self.plans[loop.number]
        if self.results is not None and kept.may_be_kept:
            return self.results.load_entries(loop, (*kept.taped, *kept.functions))
        statements: Block = []
        for array in reversed(kept.logged):
            tape = self.tapes.for_array(self.task.kernel.arrays[array])
            if array in kept.regular:
                statements += self.put_back(tape, kept.regular[array])
                continue
            mark = self.names.local(f"mark_{array}", Type.I32)
            statements += [*self.tapes.pop(mark), *self.tapes.undo(tape, mark, loop.line)]
        for name in reversed(kept.taped):
            statements += self.tapes.pop(nodes.Local(name, self.names.types[name]))
        return statements

    def put_back(self, tape: Tape, log: RegularLog) -> Block:
        """Write statements that restore what an iteration overwrote, from a regular log."""
        statements: Block = [nodes.Assign(tape.top.name, minus(tape.top, log.count))]
        for one in reversed([*log.stores.values()]):
            statements.append(one.undo(nodes.Load(tape.array, (tape.slot(one.place),), (), tape.type), self.names))
        return statements

    def backwards(self, loop: nodes.Loop, body: Block, *, is_ordered: bool) -> nodes.Stmt:
        """Write a loop that runs `body`, a reversed iteration, from the last iteration of `loop` to the first.

        If the trips were not counted and `is_ordered` is false (the iterations may run in any order), it runs from the
        first to the last.
        """
        self.frames.runs_back |= is_ordered
        one = constant(1, Type.I32)
        trips = self.trips.get(loop.number)
        if trips is not None:
            back = self.names.fresh("back", Type.I32)
            bounds = ((constant(0, Type.I32), nodes.Local(trips, Type.I32)),)
            for name, (first, _) in zip(loop.names, loop.bounds, strict=True):
                place = minus(minus(nodes.Local(trips, Type.I32), one), nodes.Local(back, Type.I32))
                body = [nodes.Assign(name, plus(first, place)), *body]
            return nodes.For((back,), bounds, tuple(body), line=loop.line)
        if not is_ordered:
            return nodes.For(loop.names, loop.bounds, tuple(body), line=loop.line)
        return run_downwards(loop, body, self.names)


def run_downwards(loop: nodes.Loop, body: Block, names: Names) -> nodes.For:
    """Write a loop that runs `body` for the iterations of `loop` in reverse order."""
    backs = tuple(names.fresh(f"{name}_back", Type.I32) for name in loop.names)
    head: Block = []
    bounds = []
    for name, back, (first, end) in zip(loop.names, backs, loop.bounds, strict=True):
        bounds.append((constant(0, Type.I32), minus(end, first)))
        head.append(nodes.Assign(name, minus(minus(end, constant(1, Type.I32)), nodes.Local(back, Type.I32))))
    return nodes.For(backs, tuple(bounds), (*head, *body), loop.is_parallel, loop.line)


def without_locals(forward: Sequence[nodes.Stmt], names: Collection[str]) -> Block:
    """Return the statements without those that assign these locals."""
    return [one for one in forward if not isinstance(one, nodes.Assign) or one.name not in names]
