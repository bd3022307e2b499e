"""The reverse of a frame: its steps run forward, and then backwards.

    a = x[i]              a = x[i]
    b = sin(a)     ->     b = sin(a)
    y[i] = b              grad_b = grad_y[i]
                          grad_a = grad_b * cos(a)
                          grad_x[i] += grad_a

A frame runs forward once (`forward`), and all its locals stay; then its steps are reversed, the last first.
`_loop_reversal` reverses the loops in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from ....analyses import slopes
from ....ir import (
    RUN_IN_ORDER,
    AtomicOperator,
    Misfit,
    Names,
    NotCovered,
    cast,
    constant,
    either,
    is_constant,
    is_not_zero,
    negate,
    nodes,
    plus,
    types,
    walk,
)
from ..._decompositions import adjoint_of
from .._access import find_unread_stores
from .._ssa import BranchArm, Step, frame_locals, repeatable_definitions
from .._tasks import Task
from ._accumulators import find_sums_in_place
from ._guards import Guards, put_under
from ._sums import Frame, Sums

Block = list[nodes.Stmt]


class TurnedFrame(NamedTuple):
    """A frame run forward, and then backwards."""

    forward: Block
    backwards: Block

    @property
    def whole(self) -> Block:
        return [*self.forward, *self.backwards]


class Loops(Protocol):
    """Writes the loops of a frame."""

    def forward_loop(self, loop: nodes.Loop) -> Block:
        """Write a loop in a frame that runs forward, and keeps what its reverse needs."""
        ...

    def reverse_loop(self, loop: nodes.Loop) -> Block:
        """Write the reverse of a loop."""
        ...


@dataclass
class FrameReversal:
    """Writes the reverse of the frames of one task.

    Attributes:
        task: the task.
        state: arrays that it reads and changes: its reverse works on copies of them.
        names: names of this reverse.
        loops: writes the loops in them.
        adjoints: locals that gather those of others, by name; `adjoint_owners` is the inverse.
        partial_sums: locals whose adjoint is that of a sum which a loop adds to.
        sums_in_place: numbers of stores that add to what they overwrite, with the local that was loaded.
        read_later: for each frame, arrays that its later steps read, or their reverse.
        runs_back: whether the task's loop runs from its last iteration to its first.
        is_forward_pass: whether steps that run forward are those of the forward pass, which changes memory.
    """

    task: Task
    state: frozenset[str]
    names: Names
    loops: Loops = field(init=False)
    sums: Sums = field(init=False)
    adjoints: dict[str, str] = field(default_factory=dict)
    adjoint_owners: dict[str, list[str]] = field(default_factory=dict)
    partial_sums: set[str] = field(default_factory=set)
    sums_in_place: Mapping[int, str] = field(default_factory=dict)
    read_later: list[set[str]] = field(default_factory=list)
    task_steps: Sequence[Step] = ()
    runs_back: bool = False
    is_forward_pass: bool = False
    _guards: list[Guards] = field(default_factory=list)
    summands: frozenset[str] = frozenset()
    _old: dict[int, str] = field(default_factory=dict)
    _unread: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start with no frame."""
        self.sums = Sums(self.names)

    # Frames -----------------------------------------------------------------------------------

    def frame(
        self, body: Sequence[Step], given: Iterable[str], handed: Sequence[tuple[str, nodes.Expr]] = ()
    ) -> TurnedFrame:
        """Write a frame that runs forward and then backwards.

        Args:
            body: its steps.
            given: locals that it finds: loops' names and what they are handed.
            handed: adjoints that come in at its end, of the expressions they belong to.
        """
        mine = [*given, *frame_locals(body)]
        frame = Frame(frozenset(mine), repeatable_definitions(walk.frame_statements(body), self.task.changed_arrays))
        self._unread |= find_unread_stores(body)
        self._guards.append(Guards(frozenset(mine)))
        if not self.read_later:
            self.task_steps = body
            self.sums_in_place = find_sums_in_place(body)
            self.summands = frozenset(self.sums_in_place.values())
        self.read_later.append(set())
        # The reverse is written before the forward steps: what it reads decides what a loop that runs forward keeps.
        with self.sums.inside(frame):
            backwards: Block = []
            for adjoint, expr in handed:
                backwards += self.propagate_adjoint(expr, nodes.Local(adjoint, expr.type))
            backwards += self.backward(body)
        self._guards.pop()
        self.read_later.pop()
        forward = self.forward(body)
        # Partial sums share the adjoint of the whole sum, which outer frames set: a zero here would lose it.
        zeros = [self.zero(name) for name in mine if name in self.adjoints and name not in self.partial_sums]
        added = [self.add_total(load, total, frame.lines[load]) for load, total in frame.totals.items()]
        begun = [nodes.Assign(total.name, constant(0, total.type)) for total in frame.totals.values()]
        return TurnedFrame(forward, [*begun, *zeros, *backwards, *added])

    def zero(self, local: str) -> nodes.Stmt:
        return nodes.Assign(self.adjoints[local], constant(0, self.names.types[local]))

    def adjoint(self, local: str) -> nodes.Local:
        """Return the local that gathers another one's adjoint; create it at the first request."""
        if local not in self.adjoints:
            self._set_adjoint(local, self.names.like(local, f"grad_{local}"))
        return nodes.Local(self.adjoints[local], self.names.types[local])

    def share_adjoint(self, partial_sums: Collection[str], whole: str) -> None:
        """Let partial sums share the adjoint of the whole sum."""
        adjoint = self.adjoint(whole).name
        for name in partial_sums:
            self._set_adjoint(name, adjoint)
        self.partial_sums.update(partial_sums)

    def _set_adjoint(self, local: str, adjoint: str) -> None:
        self.adjoints[local] = adjoint
        self.adjoint_owners.setdefault(adjoint, []).append(local)

    # Forward ----------------------------------------------------------------------------------

    def forward(self, body: Sequence[Step]) -> Block:
        """Write the forward steps of a frame that is going to be reversed: its locals keep their names."""
        statements: Block = []
        for step in body:
            match step:
                case nodes.Assign() | nodes.Decompose():
                    statements.append(step)
                case nodes.Store():
                    statements += self.save_overwritten(step)
                case nodes.Atomic():
                    # Nobody reads what it changes: a read one has become a load and a store.
                    statements += [step] if self.is_forward_pass else []
                case nodes.If():
                    then, other = (tuple(self.forward(part)) for part in (step.body, step.orelse))
                    statements.append(nodes.If(step.condition, then, other, step.line))
                case nodes.Loop():
                    statements += self.loops.forward_loop(step)
        return statements

    def save_overwritten(self, store: nodes.Store) -> Block:
        """Write a store to a copied array, preceded by the assignment of the overwritten value to a local."""
        if self.is_forward_pass:
            return [store]
        if store.array not in self.state or store.number in self._unread:
            return []
        old = self.old_of(store)
        before = nodes.Load(store.array, store.index, store.entry, old.type)
        return [nodes.Assign(old.name, before, store.line), store]

    # Backwards --------------------------------------------------------------------------------

    def backward(self, body: Sequence[Step]) -> Block:
        """Write the reverse of a frame's steps, the last first."""
        statements: Block = []
        for step in reversed(body):
            match step:
                case nodes.Assign():
                    statements += self.reverse_assign(step)
                case nodes.Decompose():
                    statements += self.reverse_decompose(step)
                case nodes.Store():
                    statements += self.reverse_store(step)
                case nodes.Atomic():
                    statements += self.reverse_atomic(step)
                case nodes.If():
                    statements.append(self.reverse_branch(step))
                case nodes.Loop():
                    statements += self.loops.reverse_loop(step)
        return statements

    def reverse_branch(self, step: nodes.If) -> nodes.Stmt:
        arms = []
        for part, holds in ((step.body, True), (step.orelse, False)):
            with self._guards[-1].extend_path((BranchArm(step.number, step.condition, holds),)):
                arms.append(tuple(self.backward(part)))
        return nodes.If(step.condition, arms[0], arms[1], step.line)

    def reverse_under_guard(self, names: Sequence[str], reverse: Callable[[], Block]) -> Block:
        """Write the reverse of a step that assigns these locals, under the arms where an adjoint may not be zero."""
        if not self.partial_sums.isdisjoint(names):
            # The adjoint of a sum is that of the whole loop and comes
            # from outside of the frame, so no branch here guards it.
            return reverse()
        guard = self._guards[-1].beyond_path(names)
        if guard is None:
            return []
        with self._guards[-1].extend_path(guard):
            return put_under(reverse(), guard)

    def reverse_assign(self, step: nodes.Assign) -> Block:
        if isinstance(step.value, nodes.Load):
            self.read_later[-1].add(step.value.array)
        # The load of `x[i] = x[i] + e` passes nothing on: the element has one adjoint before and after the store.
        if step.name not in self.task.activity or step.name in self.summands:
            return []
        seed = self.adjoint(step.name)

        def reverse() -> Block:
            if isinstance(step.value, nodes.Load):
                return self.reverse_load(step.value, seed, step.line)
            return self.propagate_adjoint(step.value, seed, nodes.Local(step.name, seed.type), step.line)

        return self.reverse_under_guard([step.name], reverse)

    def reverse_decompose(self, step: nodes.Decompose) -> Block:
        if not any(name in self.task.activity for name in step.results):
            return []
        zero = constant(0, step.type)
        seeds = [self.adjoint(name) if name in self.task.activity else zero for name in step.results]

        def reverse() -> Block:
            statements, adjoints = adjoint_of(step, seeds, self.names)
            for entry, adjoint in zip(step.matrix, adjoints, strict=True):
                statements += self.propagate_adjoint(entry, cast(adjoint, entry.type), None, step.line)
            return statements

        return self.reverse_under_guard(step.results, reverse)

    def note_use(self, local: str) -> None:
        """Record in the frame of a local that something is added to its adjoint here."""
        for guards in reversed(self._guards):
            if local in guards.own:
                guards.note_use(local)
                return

    def propagate_adjoint(
        self, expr: nodes.Expr, seed: nodes.Expr, value: nodes.Expr | None = None, line: int = 0
    ) -> Block:
        """Write additions to the adjoints of an expression's locals; `seed` is its own adjoint."""
        if isinstance(expr, nodes.Local):
            # What partial sums and summands would get, they have
            # already: one local or element stands for all of them.
            if expr.name not in self.task.activity or expr.name in self.partial_sums or expr.name in self.summands:
                return []
            self.note_use(expr.name)
            target = self.adjoint(expr.name)
            return [nodes.Assign(target.name, plus(target, seed), line)]
        if not self.task.activity.depends(expr):
            return []
        assert isinstance(expr, nodes.Unary | nodes.Binary | nodes.Cast), expr
        if isinstance(expr, nodes.Cast) and expr.keeps_bits:
            raise NotCovered("`bit_cast` of a number that has a gradient", line, self.task.kernel.path)
        try:
            derivatives = slopes(expr, expr if value is None else value)
        except Misfit as reason:
            raise NotCovered(str(reason), line, self.task.kernel.path) from None
        statements: Block = []
        for slope in derivatives:
            part = slope.of(seed)
            # The slope may be infinite, as that of sqrt at 0, and 0 * inf is not a number: a path without an adjoint
            # adds 0. `is_not_zero` is true of NaN, so that a NaN cotangent is not hidden.
            if slope.is_singular:
                part = either(is_not_zero(seed), part, constant(0, part.type))
            if not is_constant(part, 0):
                statements += self.propagate_adjoint(slope.operand, part, None, line)
        return statements

    def reverse_load(self, load: nodes.Load, seed: nodes.Local, line: int) -> Block:
        """Write the reverse of a load: its adjoint is added to the array's."""
        if load.array not in self.task.gradients:
            return []
        # A store takes the adjoint of its element as it is then, so what a loop gathers must not come later.
        total = None if load.array in self.task.changed_arrays else self.sums.total(load, line)
        if total is not None:
            return [nodes.Assign(total.name, plus(total, seed), line)]
        return [self.add(load, seed, line)]

    def add(self, load: nodes.Load, value: nodes.Expr, line: int) -> nodes.Stmt:
        """Return a statement that adds `value` to the adjoint of a loaded element.

        The addition is atomic unless no other iteration touches the element.
        """
        gradient = self.task.gradients[load.array]
        if load.array not in self.task.own:
            return nodes.Atomic(AtomicOperator.ADD, gradient, load.index, load.entry, value, line=line)
        old = nodes.Load(gradient, load.index, load.entry, load.type)
        return nodes.Store(gradient, load.index, load.entry, plus(old, value), line)

    def add_total(self, load: nodes.Load, total: nodes.Local, line: int) -> nodes.Stmt:
        """Add what a loop gathered, once.

        If it is zero, nothing is added: a loop without iterations may name an element that does not exist.
        """
        return nodes.If(is_not_zero(total), (self.add(load, total, line),), (), line)

    def reverse_store(self, store: nodes.Store) -> Block:
        statements: Block = []
        gradient = self.task.gradients.get(store.array)
        if gradient is not None and types.is_float(store.value.type):
            # Before a first store nobody used the element, and a sum in
            # place passes its adjoint on: nothing is to be cleared.
            if store.number in self.task.once or store.number in self.sums_in_place:
                statements += self.propagate_stored(store, self.load_adjoint(gradient, store))
            else:
                statements += self.take_adjoint(gradient, store)
        # Other steps have loaded what they need into locals; inner loops load again when they are reversed.
        if store.array in self.state & self.task.restored_arrays and store.number not in self._unread:
            statements.append(nodes.Store(store.array, store.index, store.entry, self.old_of(store), store.line))
        return statements

    def load_adjoint(self, gradient: str, store: nodes.Store) -> nodes.Load:
        return nodes.Load(gradient, store.index, store.entry, store.value.type)

    def take_adjoint(self, gradient: str, store: nodes.Store) -> Block:
        """Propagate the adjoint of an element that a store replaces to what was stored, and set it to 0.

        Two iterations of a parallel loop may store the same value to one element, which is not a race:
        `y[s[i]] = w[s[i]]`. So where they may meet, one of them takes the adjoint in one step with the zero. A load
        and a store would let both have it.
        """
        zero = constant(0, store.value.type)
        clear = nodes.Store(gradient, store.index, store.entry, zero, store.line)
        load = self.load_adjoint(gradient, store)
        if store.array in self.task.own:
            return [*self.propagate_stored(store, load), clear]
        taken = self.names.fresh(f"{gradient}_new", load.type)
        handed = self.propagate_stored(store, nodes.Local(taken, load.type))
        if not handed:
            return [clear]
        # On one thread the last iteration's value stayed, so that iteration must take the adjoint first.
        self.runs_back = True
        return [nodes.Assign(taken, load, store.line), replace(clear, takes=True), *handed]

    def old_of(self, store: nodes.Store) -> nodes.Local:
        """Return the local that keeps the value which a store to a copied array overwrites."""
        kind = self.task.kernel.arrays[store.array].type
        if store.number not in self._old:
            self._old[store.number] = self.names.fresh(f"{store.array}_old", kind)
        return nodes.Local(self._old[store.number], kind)

    def propagate_stored(self, store: nodes.Store | nodes.Atomic, adjoint: nodes.Expr) -> Block:
        """Propagate an element's adjoint to the value that was stored."""
        return self.propagate_adjoint(store.value, adjoint, None, store.line)

    def reverse_atomic(self, atomic: nodes.Atomic) -> Block:
        gradient = self.task.gradients.get(atomic.array)
        if gradient is None or not self.task.activity.depends(atomic.value):
            return []
        if atomic.operator not in (AtomicOperator.ADD, AtomicOperator.SUB):
            words = f"atomic_{atomic.operator} on an element that other parallel iterations change, too"
            raise NotCovered(words, atomic.line, self.task.kernel.path, remedy=RUN_IN_ORDER)
        adjoint: nodes.Expr = nodes.Load(gradient, atomic.index, atomic.entry, atomic.value.type)
        return self.propagate_stored(atomic, negate(adjoint) if atomic.operator == AtomicOperator.SUB else adjoint)
