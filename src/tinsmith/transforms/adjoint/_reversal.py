"""The reverse of one task: run forward what is needed, then every step backwards.

A frame runs forward once (`forward`), and all its locals stay; then its steps are reversed. A loop inside
runs forward too, keeping on a tape what each iteration was handed, as far as the reverse needs it;
when it is reversed, each iteration takes that back, and is a frame of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...source.ir import NotCovered, nodes, types, walk
from .._algebra import cast, compared, constant, either, is_constant, minus, negated, plus
from .._decompositions import adjoint_of
from .._names import Names
from .._slopes import slopes
from ..analysis import Activity
from ..polish import live_before, pruned
from ._access import unread
from ._accumulators import find_partial_sums, find_sums_in_place
from ._form import Branch, Carried, Loop, Step, frame_locals, frame_steps, loads_in, steps_in, stores_in
from ._guards import Guards, put_under
from ._inverses import Rerun, plan_rerun
from ._order import overwrites
from ._plain import Plain, Renamed
from ._regular_logs import RegularLog, find_regular_log
from ._sums import Frame, Sums
from ._tapes import Tape, Tapes

Block = list[nodes.Stmt]


@dataclass(frozen=True)
class Kept:
    """What a loop keeps of each iteration.

    Attributes:
        heads: locals that go on a tape.
        logged: arrays whose overwritten values are logged.
        regular: those logs whose places follow from the text.
        inverted: locals that are worked out backwards instead.
    """

    heads: tuple[str, ...]
    logged: tuple[str, ...]
    regular: Mapping[str, RegularLog]
    inverted: tuple[str, ...] = ()


class Turned(NamedTuple):
    """A frame run forward, and then backwards."""

    forward: Block
    backwards: Block

    @property
    def whole(self) -> Block:
        return [*self.forward, *self.backwards]


@dataclass(frozen=True)
class Task:
    """What is known of a task's memory.

    Attributes:
        arrays: all arrays by name.
        gradients: names of the adjoints of arrays that have one.
        state: arrays that the task reads and changes: it works on copies of them.
        changed: arrays that the task changes.
        own: arrays no element of which two parallel iterations touch.
        once: numbers of stores that write an element which nothing wrote or read before.
        restores: whether overwritten values are put back: where loops run a second time.
        known: every expression that a local of the task is given.
    """

    arrays: Mapping[str, nodes.Array]
    gradients: Mapping[str, str]
    state: frozenset[str]
    changed: frozenset[str]
    own: frozenset[str]
    once: frozenset[int]
    restores: bool
    path: str
    known: Mapping[str, Sequence[nodes.Expr]]


@dataclass
class Reversal:
    """Makes the reverse of one task.

    Attributes:
        kept: what loops keep, by their numbers.
        trips: locals that count how often loops ran, where only a run can tell.
        ends: by loop, conditions that end it, with the local that says whether it did, and the truth that ends it.
        adjoints: locals that gather those of others, by name.
        runs_back: whether a loop inside runs from its last iteration to its first.
    """

    task: Task
    activity: Activity
    names: Names
    tapes: Tapes = field(init=False)
    sums: Sums = field(init=False)
    kept: dict[int, Kept] = field(default_factory=dict)
    trips: dict[int, str] = field(default_factory=dict)
    ends: dict[int, Mapping[str, tuple[str, bool]]] = field(default_factory=dict)
    adjoints: dict[str, str] = field(default_factory=dict)
    runs_back: bool = False
    _guards: list[Guards] = field(default_factory=list)
    _partial: set[str] = field(default_factory=set)
    _read_later: list[set[str]] = field(default_factory=list)
    _idle: set[int] = field(default_factory=set)
    _task_steps: Sequence[Step] = ()
    _in_place: Mapping[int, str] = field(default_factory=dict)
    _summands: frozenset[str] = frozenset()
    _old: dict[int, str] = field(default_factory=dict)
    _unread: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start with empty tapes."""
        self.tapes = Tapes(self.names)
        self.sums = Sums(self.names)

    # Frames -----------------------------------------------------------------------------------

    def frame(
        self, body: Sequence[Step], given: Iterable[str], handed: Sequence[tuple[str, nodes.Expr]] = ()
    ) -> Turned:
        """A frame run forward and then backwards.

        Args:
            body: its steps.
            given: locals that it finds: loops' names and what they are handed.
            handed: adjoints that come in at its end, of the expressions they belong to.
        """
        mine = [*given, *frame_locals(body)]
        frame = Frame(frozenset(mine), definitions(body, self.task.changed))
        self._unread |= unread(body)
        self._guards.append(Guards(frozenset(mine)))
        if not self._read_later:
            self._task_steps = body
            self._in_place = find_sums_in_place(body)
            self._summands = frozenset(self._in_place.values())
        self._read_later.append(set())
        with self.sums.inside(frame):
            backwards: Block = []
            for adjoint, expr in handed:
                backwards += self.pulled(expr, nodes.Local(adjoint, expr.type))
            backwards += self.backward(body)
        self._guards.pop()
        self._read_later.pop()
        forward = self.forward(body)
        zeros = [self.zero(name) for name in mine if name in self.adjoints and name not in self._partial]
        added = [step for total in frame.totals for step in self.added(total)]
        begun = [nodes.Assign(total.local, constant(0, total.load.type)) for total in frame.totals]
        return Turned(forward, [*begun, *zeros, *backwards, *added])

    def zero(self, local: str) -> nodes.Stmt:
        return nodes.Assign(self.adjoints[local], constant(0, self.names.types[local]))

    def adjoint(self, local: str) -> nodes.Local:
        """The local that gathers another one's adjoint."""
        if local not in self.adjoints:
            self.adjoints[local] = self.names.like(local, f"grad_{local}")
        return nodes.Local(self.adjoints[local], self.names.types[local])

    # Forward ----------------------------------------------------------------------------------

    def forward(self, body: Sequence[Step]) -> Block:
        """Steps of a frame that is going to be reversed: its locals stay."""
        found: Block = []
        for step in body:
            match step:
                case nodes.Assign() | nodes.Decompose():
                    found.append(step)
                case nodes.Store():
                    found += self.overwritten(step)
                case nodes.Atomic():
                    pass  # nobody reads what it changes: a read one has become a load and a store
                case Branch():
                    then, other = (tuple(self.forward(part)) for part in (step.body, step.orelse))
                    found.append(nodes.If(step.condition, then, other, step.line))
                case Loop():
                    found += self.forward_loop(step)
        return found

    def overwritten(self, store: nodes.Store) -> Block:
        """A store to a copy: what was there before is kept in a local."""
        if store.array not in self.task.state or store.number in self._unread:
            return []
        old = self.old_of(store)
        before = nodes.Load(store.array, store.index, store.entry, old.type)
        return [nodes.Assign(old.name, before, store.line), store]

    def forward_loop(self, loop: Loop) -> Block:
        """A loop in a frame: its iterations leave only what `kept` says."""
        kept = self.kept[loop.number]
        plain = Plain(self.names, lambda store, inner: self.logged(loop, store, inner))
        renamed: Renamed = {one.last: nodes.Local(one.last, self.names.types[one.last]) for one in loop.carried}

        def head(inner: Renamed) -> Block:
            found: Block = []
            for name in kept.heads:
                now = inner[name]
                assert isinstance(now, nodes.Local)
                found += self.tapes.push(now)
            for array in kept.logged:
                if array not in kept.regular:
                    found += self.tapes.push(self.tapes.top_of(self.task.arrays[array]))
            return found

        trips = self.trips.get(loop.number)
        ends = self.ends[loop.number]
        begun = [] if trips is None else [nodes.Assign(trips, constant(0, "i32"))]
        begun += [nodes.Assign(ended, nodes.Const(False, "u1")) for ended, _ in ends.values()]

        def tail(inner: Renamed) -> Block:
            found: Block = []
            if trips is not None:
                found.append(nodes.Assign(trips, plus(nodes.Local(trips, "i32"), constant(1, "i32"))))
            for array, log in kept.regular.items():
                top = self.tapes.top_of(self.task.arrays[array])
                found.append(nodes.Assign(top.name, plus(top, walk.substituted(log.count, inner))))
            for condition, (ended, truth) in ends.items():
                held = walk.substituted(nodes.Local(condition, "u1"), inner)
                found.append(nodes.Assign(ended, held if truth else nodes.Unary("not", held, "u1")))
            return found

        return [*begun, *plain.loop(loop, renamed, head, tail)]

    def logged(self, loop: Loop, store: nodes.Store | nodes.Atomic, renamed: Renamed) -> Block:
        """A store in a loop that runs forward."""
        kept = self.kept[loop.number]
        if store.array not in self.task.state or loop.number in self._idle:
            return []
        if store.array not in kept.logged:
            return [store]
        tape = self.tapes.for_array(self.task.arrays[store.array])
        if store.array not in kept.regular:
            return [*self.tapes.log(tape, store.index), store]
        place = walk.substituted(kept.regular[store.array].stores[store.number].place, renamed)
        old = nodes.Load(store.array, store.index, store.entry, tape.type)
        return [nodes.Store(tape.array, (tape.slot(place),), (), old), store]

    # Backwards --------------------------------------------------------------------------------

    def backward(self, body: Sequence[Step]) -> Block:
        """The reverse of a frame's steps, the last first."""
        found: Block = []
        for step in reversed(body):
            match step:
                case nodes.Assign():
                    found += self.assigned(step)
                case nodes.Decompose():
                    found += self.decomposed(step)
                case nodes.Store():
                    found += self.stored(step)
                case nodes.Atomic():
                    found += self.gathered(step)
                case Branch():
                    found.append(self.branched(step))
                case Loop():
                    found += self.looped(step)
        return found

    def branched(self, step: Branch) -> nodes.Stmt:
        arms = []
        for part, holds in ((step.body, True), (step.orelse, False)):
            with self._guards[-1].inside(step, holds=holds):
                arms.append(tuple(self.backward(part)))
        return nodes.If(step.condition, arms[0], arms[1], step.line)

    def reverse_under_guard(self, names: Sequence[str], reverse: Callable[[], Block]) -> Block:
        """The reverse of a step that gives these locals their values, where one of their adjoints may not be zero."""
        if not self._partial.isdisjoint(names):
            return reverse()  # the adjoint of a sum, which came in from outside of the frame
        guard = self._guards[-1].beyond_path(names)
        if guard is None:
            return []
        with self._guards[-1].under(guard):
            return put_under(reverse(), guard)

    def assigned(self, step: nodes.Assign) -> Block:
        if isinstance(step.value, nodes.Load):
            self._read_later[-1].add(step.value.array)
        if step.name not in self.activity or step.name in self._summands:
            return []
        seed = self.adjoint(step.name)

        def reverse() -> Block:
            if isinstance(step.value, nodes.Load):
                return self.loaded(step.value, seed, step.line)
            return self.pulled(step.value, seed, nodes.Local(step.name, seed.type), step.line)

        return self.reverse_under_guard([step.name], reverse)

    def decomposed(self, step: nodes.Decompose) -> Block:
        if not any(name in self.activity for name in step.results):
            return []
        zero = constant(0, step.type)
        seeds = [self.adjoint(name) if name in self.activity else zero for name in step.results]

        def reverse() -> Block:
            found, adjoints = adjoint_of(step, seeds, self.names)
            for entry, adjoint in zip(step.matrix, adjoints, strict=True):
                found += self.pulled(entry, cast(adjoint, entry.type), None, step.line)
            return found

        return self.reverse_under_guard(step.results, reverse)

    def note_use(self, local: str) -> None:
        """Something is added to a local's adjoint: the frame that the local belongs to takes note."""
        for guards in reversed(self._guards):
            if local in guards.own:
                guards.note_use(local)
                return

    def pulled(self, expr: nodes.Expr, seed: nodes.Expr, value: nodes.Expr | None = None, line: int = 0) -> Block:
        """Adds to the adjoints of an expression's locals, `seed` being its own."""
        if isinstance(expr, nodes.Local):
            if expr.name not in self.activity or expr.name in self._partial | self._summands:
                return []
            self.note_use(expr.name)
            target = self.adjoint(expr.name)
            return [nodes.Assign(target.name, plus(target, seed), line)]
        if not self.activity.depends(expr):
            return []
        assert isinstance(expr, nodes.Unary | nodes.Binary | nodes.Cast), expr
        if isinstance(expr, nodes.Cast) and expr.keeps_bits:
            raise NotCovered("the bits of a number that has a gradient", line, f"{self.task.path}:{line}")
        found: Block = []
        for slope in slopes(expr, expr if value is None else value):
            part = slope.of(seed)
            if slope.is_singular:
                part = either(compared("!=", seed, constant(0, seed.type)), part, constant(0, part.type))
            if not is_constant(part, 0):
                found += self.pulled(slope.operand, part, None, line)
        return found

    def loaded(self, load: nodes.Load, seed: nodes.Local, line: int) -> Block:
        """A load hands its adjoint to the array's."""
        if load.array not in self.task.gradients:
            return []
        total = None if load.array in self.task.changed else self.sums.total(load)
        if total is not None:
            return [nodes.Assign(total.name, plus(total, seed), line)]
        return [self.add(load, seed, line)]

    def add(self, load: nodes.Load, value: nodes.Expr, line: int = 0) -> nodes.Stmt:
        """Add to the adjoint of an element: plainly where no other iteration can."""
        gradient = self.task.gradients[load.array]
        if load.array not in self.task.own:
            return nodes.Atomic("add", gradient, load.index, load.entry, value, line=line)
        old = nodes.Load(gradient, load.index, load.entry, load.type)
        return nodes.Store(gradient, load.index, load.entry, plus(old, value), line)

    def added(self, total: Sums.Total) -> Block:
        """What a loop gathered, added once. Nothing gathered: the element may not be there."""
        local = nodes.Local(total.local, total.load.type)
        return [nodes.If(compared("!=", local, constant(0, local.type)), (self.add(total.load, local),))]

    def stored(self, store: nodes.Store) -> Block:
        found: Block = []
        gradient = self.task.gradients.get(store.array)
        if gradient is not None and types.is_float(store.value.type):
            load = nodes.Load(gradient, store.index, store.entry, store.value.type)
            found += self.taken(store, load)
            if store.number not in self.task.once and store.number not in self._in_place:
                zero = constant(0, store.value.type)
                found.append(nodes.Store(gradient, store.index, store.entry, zero, store.line))
        if store.array in self.task.state and self.task.restores and store.number not in self._unread:
            found.append(nodes.Store(store.array, store.index, store.entry, self.old_of(store), store.line))
        return found

    def old_of(self, store: nodes.Store) -> nodes.Local:
        """The local that keeps what a store to a copy overwrites."""
        kind = self.task.arrays[store.array].type
        if store.number not in self._old:
            self._old[store.number] = self.names.fresh(f"{store.array}_old", kind)
        return nodes.Local(self._old[store.number], kind)

    def taken(self, store: nodes.Store | nodes.Atomic, adjoint: nodes.Expr) -> Block:
        """An element's adjoint, handed to the value that was stored."""
        return self.pulled(store.value, adjoint, None, store.line)

    def gathered(self, atomic: nodes.Atomic) -> Block:
        gradient = self.task.gradients.get(atomic.array)
        if gradient is None or not self.activity.depends(atomic.value):
            return []
        if atomic.operator not in ("add", "sub"):
            words = f"atomic_{atomic.operator} on what other parallel iterations change too"
            raise NotCovered(words, atomic.line, f"{self.task.path}:{atomic.line}")
        adjoint: nodes.Expr = nodes.Load(gradient, atomic.index, atomic.entry, atomic.value.type)
        return self.taken(atomic, negated(adjoint) if atomic.operator == "sub" else adjoint)

    # Loops ------------------------------------------------------------------------------------

    def looped(self, loop: Loop) -> Block:
        """The reverse of a loop: its iterations from the last to the first."""
        active = [one for one in loop.carried if one.last in self.activity or one.head in self.activity]
        if not loop.names or loop.exit is not None:
            self.trips[loop.number] = self.names.fresh("trips", "i32")
        known = set(self.names.types)
        summed = [one for one in active if self.share_adjoint_of_sum(loop, one)]
        moved = [one for one in active if one not in summed]
        for one in moved:
            self.adjoint(one.head)
        handed = [(self.adjoint(one.last).name, one.next) for one in moved]
        inner = self.frame(loop.body, (*loop.names, *(one.head for one in loop.carried)), handed)
        inner.backwards.extend(nodes.Assign(self.adjoint(one.last).name, self.adjoint(one.head)) for one in moved)
        heads = self.needed(loop, inner.whole, known)
        logged = self.choose_logs(loop, inner.whole, known)
        rerun = plan_rerun(loop, heads, self.names, self.task.state, self.task.known)
        inverses = rerun.inverses if rerun else ()
        inverted = tuple(one.carried.head for one in inverses)
        taped = tuple(name for name in heads if name not in inverted)
        logs = ((array, find_regular_log(loop, array)) for array in logged)
        self.kept[loop.number] = Kept(taped, logged, {array: log for array, log in logs if log is not None}, inverted)
        forward = self.rerun(rerun) if rerun else inner.forward
        self.ends[loop.number] = rerun.ends if rerun else {}
        last = [nodes.Assign(one.now, nodes.Local(one.carried.head, one.type)) for one in inverses]
        body = [*self.given_back(loop), *forward, *inner.backwards, *last]
        is_ordered = bool(heads or logged or moved)
        is_ordered |= overwrites(loop, self.task.gradients, self.task.once | self.find_unordered_sums(loop))
        found: Block = [nodes.Assign(one.now, nodes.Local(one.carried.last, one.type)) for one in inverses]
        found.append(self.backwards(loop, body, is_ordered=is_ordered))
        for one in active:
            found += self.pulled(one.first, self.adjoint(one.last))
        return found

    def rerun(self, rerun: Rerun) -> Block:
        """An iteration run forward whose heads are worked out backwards, by what does not depend on them."""
        found: Block = []
        for stage in rerun.stages:
            found += self.forward(stage.steps)
            found += [statement for one in stage.inverses for statement in one.statements]
        never = [nodes.Assign(ended, nodes.Const(False, "u1")) for ended, _ in rerun.ends.values()]
        return [*found, *self.forward(rerun.rest), *never]

    def find_unordered_sums(self, loop: Loop) -> set[int]:
        """Sums in place on arrays that a loop reads for nothing else: what goes back through them has no order."""
        loads = (
            one for one in steps_in(loop.body) if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Load)
        )
        read = walk.reads([one for one in loads if one.name not in self._summands])
        stores = (one for one in stores_in(loop.body) if one.number in self._in_place and one.array not in read)
        return {one.number for one in stores}

    def share_adjoint_of_sum(self, loop: Loop, carried: Carried) -> bool:
        """Whether a loop only adds to what it hands on: then the sum's adjoint is that of each partial sum."""
        members = find_partial_sums(loop, carried)
        adjoint = self.adjoint(carried.last).name
        self.adjoints |= dict.fromkeys(members, adjoint)
        self._partial |= members
        return bool(members)

    def needed(self, loop: Loop, inner: Block, known: set[str]) -> tuple[str, ...]:
        """Of what iterations are handed, what their reverse needs."""
        own = self._own_of(loop, known)
        live = live_before(inner, lambda name: name not in own)
        return tuple(one.head for one in loop.carried if one.head in live)

    def _own_of(self, loop: Loop, known: set[str]) -> set[str]:
        """Locals of a loop's reversed iteration that nothing outside of it asks for."""
        own = _own_locals(loop)
        own |= {adjoint for local, adjoint in self.adjoints.items() if local in own}
        return own | ({name for name in self.names.types if name not in known} - self._outer_adjoints(own))

    def choose_logs(self, loop: Loop, inner: Block, known: set[str]) -> tuple[str, ...]:
        """Arrays whose overwritten values a loop logs: those that its reversed iterations, or what follows them, read.

        Where nobody reads any of what it stores before it has been reversed, the loop need not run forward for it.
        """
        stored = {store.array for store in stores_in(loop.body)} & self.task.state
        own = self._own_of(loop, known)
        given = {name for one in walk.statements(inner) for name in walk.assigned(one)}
        read = walk.reads(pruned(inner, given - own))
        later = self._read_later[-1]
        if stored.isdisjoint(read | later):
            self._idle.add(loop.number)
            stored = set[str]()
        else:
            later |= {load.array for load in loads_in(loop.body)}
        later |= read
        if len(self._read_later) == 1:
            # Nothing is reversed after the task's own steps: those before the loop say what they have read.
            inside = {step.number for step in steps_in([loop])}
            outside = [step for step in steps_in(self._task_steps) if step.number not in inside]
            stored &= read.union(*(walk.reads([step]) for step in outside if isinstance(step, nodes.Assign)))
        return tuple(sorted(stored))

    def _outer_adjoints(self, own: set[str]) -> set[str]:
        found = {adjoint for local, adjoint in self.adjoints.items() if local not in own}
        return found | {total.local for frame in self.sums.frames for total in frame.totals}

    def given_back(self, loop: Loop) -> Block:
        """The head of a reversed iteration: what was kept, the latest first, and memory as it was."""
        kept = self.kept[loop.number]
        found: Block = []
        for array in reversed(kept.logged):
            tape = self.tapes.for_array(self.task.arrays[array])
            if array in kept.regular:
                found += self.put_back(tape, kept.regular[array])
                continue
            mark = nodes.Local(self.names.fresh(f"mark_{array}", "i32"), "i32")
            found += [*self.tapes.pop(mark), *self.tapes.undo(tape, mark)]
        for name in reversed(kept.heads):
            found += self.tapes.pop(nodes.Local(name, self.names.types[name]))
        return found

    def put_back(self, tape: Tape, log: RegularLog) -> Block:
        """What an iteration overwrote, from a regular log."""
        top = nodes.Local(tape.top, "i32")
        found: Block = [nodes.Assign(tape.top, minus(top, log.count))]
        for one in reversed([*log.stores.values()]):
            found.append(one.undo(nodes.Load(tape.array, (tape.slot(one.place),), (), tape.type), self.names))
        return found

    def backwards(self, loop: Loop, body: Block, *, is_ordered: bool) -> nodes.Stmt:
        """The loop around reversed iterations."""
        self.runs_back |= is_ordered
        one = constant(1, "i32")
        trips = self.trips.get(loop.number)
        if trips is not None:
            back = self.names.fresh("back", "i32")
            bounds = ((constant(0, "i32"), nodes.Local(trips, "i32")),)
            for name, (first, _) in zip(loop.names, loop.bounds, strict=True):
                place = minus(minus(nodes.Local(trips, "i32"), one), nodes.Local(back, "i32"))
                body = [nodes.Assign(name, plus(first, place)), *body]
            return nodes.For((back,), bounds, tuple(body), line=loop.line)
        if not is_ordered:
            return nodes.For(loop.names, loop.bounds, tuple(body), line=loop.line)
        backs = [self.names.fresh(f"{name}_back", "i32") for name in loop.names]
        head: Block = []
        bounds = []
        for name, back, (first, end) in zip(loop.names, backs, loop.bounds, strict=True):
            bounds.append((constant(0, "i32"), minus(end, first)))
            head.append(nodes.Assign(name, minus(minus(end, one), nodes.Local(back, "i32"))))
        return nodes.For(tuple(backs), tuple(bounds), (*head, *body), line=loop.line)


def _own_locals(loop: Loop) -> set[str]:
    """Every local of a loop's own, in inner loops too."""
    own = {*loop.names, *(one.head for one in loop.carried)}
    for step in steps_in(loop.body):
        if isinstance(step, nodes.Assign | nodes.Decompose):
            own.update(walk.assigned(step))
        elif isinstance(step, Loop):
            own |= {*step.names, *(name for one in step.carried for name in (one.head, one.last, one.cell))}
    return own


def definitions(body: Sequence[Step], changed: frozenset[str]) -> dict[str, nodes.Expr]:
    """What locals of a frame that get their value at one place are worked out from, if that can be done again."""
    found: dict[str, nodes.Expr] = {}
    again: set[str] = set()
    for step in frame_steps(body):
        if isinstance(step, nodes.Assign):
            again |= {step.name} & found.keys()
            if not any(isinstance(one, nodes.Load) and one.array in changed for one in walk.parts(step.value)):
                found[step.name] = step.value
    return {name: value for name, value in found.items() if name not in again}
