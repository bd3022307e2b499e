"""The reverse of one task: of its frames (`_frame_reversal`), and of the loops in them.

A loop in a frame runs forward too, and keeps on a tape what each iteration was handed, as far as the reverse needs it
and cannot compute it backwards. When the loop is reversed, each iteration takes that back, and is a frame of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ir import FALSE, Names, Type, constant, minus, nodes, opposite, plus, walk
from ..polish import eliminate_dead_code, live_before
from ._accumulators import find_partial_sums
from ._flops import is_function
from ._forward_copy import ForwardCopy, Renamed
from ._frame_reversal import Block, FrameReversal
from ._inverses import Rerun, plan_rerun
from ._loop_results import LoopResults
from ._regular_logs import RegularLog, find_regular_log
from ._tapes import Tape, Tapes


@dataclass(frozen=True)
class IterationRecord:
    """What a loop keeps of each iteration.

    Attributes:
        heads: locals that go on a tape.
        logged: arrays whose overwritten values are logged.
        regular: those logs whose places follow from the text.
        inverted: locals that are computed backwards instead.
        functions: values of functions that a forward pass keeps.
    """

    heads: tuple[str, ...]
    logged: tuple[str, ...]
    regular: Mapping[str, RegularLog]
    inverted: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


_NOTHING = IterationRecord((), (), {})


@dataclass
class Reversal(FrameReversal):
    """Makes the reverse of one task.

    Attributes:
        records: what loops keep, by their numbers.
        trips: locals that count how often loops ran, where only a run can tell.
        ends: by loop, conditions that end it, with the local that says whether it did, and the truth that ends it.
        idle: numbers of loops that need not change memory when they run forward.
        results: what loops of the task's own frame leave, where the forward pass keeps it.
    """

    tapes: Tapes = field(init=False)
    records: dict[int, IterationRecord] = field(default_factory=dict)
    trips: dict[int, str] = field(default_factory=dict)
    ends: dict[int, Mapping[str, tuple[str, bool]]] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    results: LoopResults | None = None

    def __post_init__(self) -> None:
        """Start with empty tapes."""
        super().__post_init__()
        self.tapes = Tapes(self.names)

    # Forward ----------------------------------------------------------------------------------

    def forward_loop(self, loop: nodes.Loop) -> Block:
        """A loop in a frame: its iterations leave only what `records` says."""
        if self.results is None or not self.needs_results_alone(loop):
            return self.run_loop(loop)
        ended = [local for local, _ in self.ends[loop.number].values()]
        left = [one.last for one in loop.carried], self.trips.get(loop.number), ended
        return [*self.run_loop(loop), *self.results.store(*left)] if self.is_forward_pass else self.results.load(*left)

    def needs_results_alone(self, loop: nodes.Loop) -> bool:
        """Whether the reverse of a loop needs nothing of its run but what the forward pass can keep."""
        # Inside another loop's frame what it leaves would need memory for each iteration of that one. Under a branch
        # it would be read where the condition, computed again, is another one for the last bit of a number.
        kept = self.records[loop.number]
        is_own = any(one is loop for one in self.task_steps)
        has_room = not kept.heads or (self.results is not None and len(kept.heads) <= self.results.room(loop))
        return is_own and has_room and not kept.logged and not self.state

    def run_loop(self, loop: nodes.Loop) -> Block:
        """A loop that runs forward."""
        kept = _NOTHING if self.is_forward_pass else self.records[loop.number]
        plain = ForwardCopy(self.names, lambda store, inner: self.log_store(loop, store, inner))
        renamed: Renamed = {one.last: nodes.Local(one.last, self.names.types[one.last]) for one in loop.carried}

        def head(inner: Renamed) -> Block:
            statements: Block = []
            for name in kept.heads:
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
            if self.results is not None and self.is_forward_pass and self.needs_results_alone(loop):
                record = self.records[loop.number]
                statements += self.results.store_entries(loop, (*record.heads, *record.functions), inner)
            if trips is not None:
                statements.append(nodes.Assign(trips, plus(nodes.Local(trips, Type.I32), constant(1, Type.I32))))
            for array, log in kept.regular.items():
                top = self.tapes.top_of(self.task.kernel.arrays[array])
                statements.append(nodes.Assign(top.name, plus(top, walk.substitute(log.count, inner))))
            for condition, (ended, truth) in ends.items():
                held = walk.substitute(nodes.Local(condition, Type.U1), inner)
                statements.append(nodes.Assign(ended, held if truth else opposite(held)))
            return statements

        return [*begun, *plain.loop(loop, renamed, head, tail)]

    def log_store(self, loop: nodes.Loop, store: nodes.Store | nodes.Atomic, renamed: Renamed) -> Block:
        """A store in a loop that runs forward."""
        kept = self.records[loop.number]
        if self.is_forward_pass:
            return [store]
        if store.array not in self.state or loop.number in self.idle:
            return []
        if store.array not in kept.logged:
            return [store]
        tape = self.tapes.for_array(self.task.kernel.arrays[store.array])
        if store.array not in kept.regular:
            return [*self.tapes.log(tape, store.index), store]
        place = walk.substitute(kept.regular[store.array].stores[store.number].place, renamed)
        old = nodes.Load(store.array, store.index, store.entry, tape.type)
        return [nodes.Store(tape.array, (tape.slot(place),), (), old), store]

    # Backwards ---------------------------------------------------------------------------------

    def reverse_loop(self, loop: nodes.Loop) -> Block:
        """The reverse of a loop: its iterations from the last to the first."""
        active = [one for one in loop.carried if one.last in self.task.activity or one.head in self.task.activity]
        if not loop.names or loop.exit is not None:
            self.trips[loop.number] = self.names.fresh("trips", Type.I32)
        known = set(self.names.types)
        summed = [one for one in active if self.share_adjoint_of_sum(loop, one)]
        moved = [one for one in active if one not in summed]
        for one in moved:
            self.adjoint(one.head)
        handed = [(self.adjoint(one.last).name, one.next) for one in moved]
        inner = self.frame(loop.body, (*loop.names, *(one.head for one in loop.carried)), handed)
        inner.backwards.extend(nodes.Assign(self.adjoint(one.last).name, self.adjoint(one.head)) for one in moved)
        heads = self.find_needed_heads(loop, inner.whole, known)
        logged = self.choose_logs(loop, inner.whole, known)
        rerun = plan_rerun(loop, heads, self.names, self.state, self.task.expressions)
        inverses = rerun.inverses if rerun else ()
        inverted = tuple(one.carried.head for one in inverses)
        taped = tuple(name for name in heads if name not in inverted)
        logs = ((array, find_regular_log(loop, array)) for array in logged)
        self.records[loop.number] = IterationRecord(
            taped, logged, {array: log for array, log in logs if log is not None}, inverted
        )
        forward = self.rerun(rerun) if rerun else inner.forward
        self.ends[loop.number] = rerun.ends if rerun else {}
        forward = self.keep_functions(loop, forward, inner.backwards)
        last = [nodes.Assign(one.now, nodes.Local(one.carried.head, one.type)) for one in inverses]
        body = [*self.restore_kept(loop), *forward, *inner.backwards, *last]
        is_ordered = bool(heads or logged or moved) or self.overwrites(loop)
        statements: Block = [nodes.Assign(one.now, nodes.Local(one.carried.last, one.type)) for one in inverses]
        statements.append(self.backwards(loop, body, is_ordered=is_ordered))
        for one in active:
            statements += self.propagate_adjoint(one.first, self.adjoint(one.last))
        return statements

    def rerun(self, rerun: Rerun) -> Block:
        """An iteration run forward whose heads are computed backwards, by what does not depend on them."""
        statements: Block = []
        for stage in rerun.stages:
            statements += self.forward(stage.steps)
            statements += [statement for one in stage.inverses for statement in one.statements]
        never = [nodes.Assign(ended, FALSE) for ended, _ in rerun.ends.values()]
        return [*statements, *self.forward(rerun.rest), *never]

    def keep_functions(self, loop: nodes.Loop, forward: Block, backwards: Block) -> Block:
        """An iteration run forward, without those functions whose values the forward pass keeps."""
        results, record = self.results, self.records[loop.number]
        if results is None or not results.keeps_functions or not self.needs_results_alone(loop):
            return forward

        def without(names: Sequence[str]) -> Block:
            return [one for one in forward if not isinstance(one, nodes.Assign) or one.name not in names]

        functions = [one.name for one in forward if isinstance(one, nodes.Assign) and is_function(one.value)]
        live = live_before([*without(functions), *backwards], lambda name: False)
        kept = [name for name in functions if name in live][: results.room(loop) - len(record.heads)]
        self.records[loop.number] = replace(record, functions=tuple(kept))
        return without(kept)

    def overwrites(self, loop: nodes.Loop) -> bool:
        """Whether an iteration may store where an earlier one did: the later one is to take the adjoint first."""
        unordered = self.task.once | self.find_unordered_sums(loop)
        stores = (one for one in walk.stores(loop.body) if isinstance(one, nodes.Store))
        return any(one.array in self.task.gradients and one.number not in unordered for one in stores)

    def find_unordered_sums(self, loop: nodes.Loop) -> set[int]:
        """Sums in place on arrays that a loop reads for nothing else: what goes back through them has no order."""
        loads = (
            one
            for one in walk.statements(loop.body)
            if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Load)
        )
        read = walk.reads([one for one in loads if one.name not in self._summands])
        stores = (one for one in walk.stores(loop.body) if one.number in self.sums_in_place and one.array not in read)
        return {one.number for one in stores}

    def share_adjoint_of_sum(self, loop: nodes.Loop, carried: nodes.CarriedLocal) -> bool:
        """Whether a loop only adds to what it hands on: then the sum's adjoint is that of each partial sum."""
        members = find_partial_sums(loop, carried)
        adjoint = self.adjoint(carried.last).name
        self.adjoints |= dict.fromkeys(members, adjoint)
        self.partial_sums |= members
        return bool(members)

    def find_needed_heads(self, loop: nodes.Loop, inner: Block, known: set[str]) -> tuple[str, ...]:
        """Of what iterations are handed, what their reverse needs."""
        own = self._own_of(loop, known)
        live = live_before(inner, lambda name: name not in own)
        return tuple(one.head for one in loop.carried if one.head in live)

    def _own_of(self, loop: nodes.Loop, known: set[str]) -> set[str]:
        """Locals of a loop's reversed iteration that nothing outside of it asks for."""
        own = walk.find_defined(loop.body) | {*loop.names, *(one.head for one in loop.carried)}
        own |= {adjoint for local, adjoint in self.adjoints.items() if local in own}
        return own | ({name for name in self.names.types if name not in known} - self._outer_adjoints(own))

    def choose_logs(self, loop: nodes.Loop, inner: Block, known: set[str]) -> tuple[str, ...]:
        """Arrays whose overwritten values a loop logs: those that its reversed iterations, or what follows them, read.

        Where nobody reads any of what it stores before it has been reversed, the loop need not run forward for it.
        """
        stored = walk.find_changed(loop.body) & self.state
        own = self._own_of(loop, known)
        read = walk.reads(eliminate_dead_code(inner, walk.find_defined(inner) - own))
        later = self.read_later[-1]
        loaded = walk.find_loaded(loop.body)
        if loop.carried or loop.exit is not None:
            later |= loaded  # what it hands on is computed from what it stores
        if stored.isdisjoint(read | later):
            self.idle.add(loop.number)
            stored = set[str]()
        else:
            later |= loaded
        later |= read
        if len(self.read_later) == 1:
            # Nothing is reversed after the task's own steps: those before the loop say what they have read.
            inside = {step.number for step in walk.statements([loop])}
            outside = [step for step in walk.statements(self.task_steps) if step.number not in inside]
            stored &= read.union(*(walk.reads([step]) for step in outside if isinstance(step, nodes.Assign)))
        return tuple(sorted(stored))

    def _outer_adjoints(self, own: set[str]) -> set[str]:
        adjoints = {adjoint for local, adjoint in self.adjoints.items() if local not in own}
        return adjoints | {total.name for frame in self.sums.frames for total in frame.totals.values()}

    def restore_kept(self, loop: nodes.Loop) -> Block:
        """The head of a reversed iteration: what was kept, the latest first, and memory as it was."""
        kept = self.records[loop.number]
        if self.results is not None and self.needs_results_alone(loop):
            return self.results.load_entries(loop, (*kept.heads, *kept.functions))
        statements: Block = []
        for array in reversed(kept.logged):
            tape = self.tapes.for_array(self.task.kernel.arrays[array])
            if array in kept.regular:
                statements += self.put_back(tape, kept.regular[array])
                continue
            mark = nodes.Local(self.names.fresh(f"mark_{array}", Type.I32), Type.I32)
            statements += [*self.tapes.pop(mark), *self.tapes.undo(tape, mark)]
        for name in reversed(kept.heads):
            statements += self.tapes.pop(nodes.Local(name, self.names.types[name]))
        return statements

    def put_back(self, tape: Tape, log: RegularLog) -> Block:
        """What an iteration overwrote, from a regular log."""
        top = nodes.Local(tape.top, Type.I32)
        statements: Block = [nodes.Assign(tape.top, minus(top, log.count))]
        for one in reversed([*log.stores.values()]):
            statements.append(one.undo(nodes.Load(tape.array, (tape.slot(one.place),), (), tape.type), self.names))
        return statements

    def backwards(self, loop: nodes.Loop, body: Block, *, is_ordered: bool) -> nodes.Stmt:
        """The loop around reversed iterations."""
        self.runs_back |= is_ordered
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
    """A loop around other statements, its last iteration first."""
    backs = tuple(names.fresh(f"{name}_back", Type.I32) for name in loop.names)
    head: Block = []
    bounds = []
    for name, back, (first, end) in zip(loop.names, backs, loop.bounds, strict=True):
        bounds.append((constant(0, Type.I32), minus(end, first)))
        head.append(nodes.Assign(name, minus(minus(end, constant(1, Type.I32)), nodes.Local(back, Type.I32))))
    return nodes.For(backs, tuple(bounds), (*head, *body), loop.is_parallel, loop.line)
