"""Maxima and minima whose winner is known only after all iterations, as ordinary tasks.

For `atomic_max(y[k], v)` in a loop, what stood in `y` before counts as one candidate more:

    winner[k] = y[k]                                # for every k
    atomic_max(winner[k], v)                        # in the loop
    ties[k] = 1 if y[k] == winner[k] else 0         # for every k
    if v == winner[k]: ties[k] += 1                 # in the loop once more

and then, through which alone derivatives go,

    y[k] = y[k] / ties[k] if y[k] == winner[k] else 0.0         # for every k
    if v == winner[k]: atomic_add(y[k], v / ties[k])            # in the loop, with all else that it does

Engines compile with fast maths: computed in another loop, `v` has other last bits, and of the winners 44 to 66 in a
hundred did not equal themselves. So a `v` that was calculated (`_Exact`) is kept by the loop that finds the winner, by
slot, and taken from there to be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ...analyses import find_parallel_loop
from ...ir import (
    ONE,
    ZERO,
    Names,
    Operator,
    Type,
    cast,
    compare,
    constant,
    iteration_number,
    nodes,
    over,
    plus,
    types,
    walk,
)
from .._evaluate import extent
from .._most_runs import most_runs
from .._rename_arrays import with_names
from .._slots import assign_slots, replace_statements
from ..polish import eliminate_dead_code
from ._extreme import INTEGER, Beside, Change, Extreme, Index, copy_of, over_elements

Standing = Callable[[nodes.Atomic], Sequence[nodes.Stmt]]
"""Returns the statements that replace an atomic."""
Rewriting = Callable[[nodes.Stmt], Sequence[nodes.Stmt]]
"""Returns the statements that replace any statement."""


@dataclass(frozen=True)
class Expansion:
    """What stands for a task.

    Attributes:
        search: tasks that find the winners and count them. They change no memory but what lies beside the arrays.
        settle: a task for each array: what stood there keeps its share.
        gather: the task itself, in which candidates that won are added.
    """

    search: nodes.Block
    settle: tuple[nodes.Block, ...]
    gather: nodes.Block


class Search:
    """The search for winners of a task that takes maxima or minima of `arrays`, and does nothing else to these.

    Attributes:
        loop: the parallel loop that the task is; None where it is what stands between two.
        body: what one thread runs.
        extremes: the arrays, by name.
        candidates: the array for candidates that have to be kept, None where none has.
        copies: arrays that the search changes copies of, with the copies' names.
    """

    def __init__(self, task: nodes.Block, kernel: nodes.Kernel, arrays: Collection[str], names: Names) -> None:
        task = walk.number_statements(task)
        self.kernel, self.names, self.task = kernel, names, task
        self.loop = find_parallel_loop(task)
        self.body = self.loop.body if self.loop else task
        self.extremes = {
            name: Extreme(kernel.arrays[name], *(names.reserve_shared(f"{name}_{word}") for word in ("ties", "winner")))
            for name in sorted(arrays)
        }
        atomics = (one for one in walk.stores(self.body) if isinstance(one, nodes.Atomic))
        self.atomics = {one.number: one for one in atomics if one.array in self.extremes}
        self.line = self.loop.line if self.loop else min(one.line for one in self.atomics.values())
        self.changed = frozenset(walk.find_changed(task))
        # The task runs several times. A value with the same bits each time can be compared; others are kept.
        exact = _Exact(task, self.changed)
        kept = {key: one.array for key, one in self.atomics.items() if not exact.has(one.value)}
        self._slotted = assign_slots(self.body, kept, names) if kept else None
        self.slots = self._slotted.slots if self._slotted else {}
        self.end: nodes.Local | None = None
        # One array for the candidates of all: in float64, those of float32 keep their bits.
        widest = Type.F64 if any(kernel.arrays[self.atomics[key].array].type == Type.F64 for key in kept) else Type.F32
        plain = nodes.Array("", widest, 1, is_differentiable=False)
        self.candidates = replace(plain, name=names.reserve_shared("candidates")) if kept else None
        self.copies: dict[str, str] = {}

    # Room for candidates ----------------------------------------------------------------------

    @property
    def counter(self) -> str:
        assert self._slotted is not None
        return self._slotted.counter

    @property
    def iterations(self) -> nodes.Expr | None:
        """How many parallel iterations there are; None where only a run can tell."""
        return extent(self.loop.bounds) if self.loop else ONE

    @property
    def most(self) -> nodes.Expr | None:
        """How many candidates an iteration has to keep at most; None where only a run can tell."""
        return None if self.iterations is None else most_runs(self.body, self.slots)

    @property
    def place(self) -> nodes.Expr:
        """An expression for the number of the current iteration, counted from 0; 0 outside of a loop."""
        return iteration_number(self.loop.names, self.loop.bounds) if self.loop else ZERO

    # The tasks --------------------------------------------------------------------------------

    def expand(self, first_slot: nodes.Expr | None = None, counted: nodes.Expr | None = None) -> Expansion:
        """Write the tasks.

        Args:
            first_slot: where the candidates of an iteration are kept.
            counted: how many a kernel counted for it; None if its room is a formula. The search may run a step more,
                for which there is no room (docs/about/decisions/chains.md): its candidate is left out.
        """
        start: nodes.Block = () if first_slot is None else (nodes.Assign(self.counter, first_slot),)
        if first_slot is not None and counted is not None:
            self.end = self.names.local("end_slot", INTEGER)
            start = (*start, nodes.Assign(self.end.name, plus(first_slot, counted)))
        extremes = self.extremes.values()
        search = [
            *self.over_all(self._begin),
            *self.again(self._find_winner, start),
            *self.over_all(self._first_tie),
            *self.again(self._count_tie, start),
        ]
        settle = tuple(over_elements(one.array, self.names, self._build_share(one), self.line) for one in extremes)
        gather = (*start, *replace_statements(self._body, self.atomics, self._add_share))
        return Expansion(tuple(search), settle, gather if self.loop is None else (replace(self.loop, body=gather),))

    @property
    def beside(self) -> tuple[Beside, ...]:
        """Memory that the search needs, whatever it holds before: known when all tasks are written."""
        beside = [memory for one in self.extremes.values() for memory in one.beside]
        return (*beside, *(Beside(copy_of(self.kernel.arrays[old], new), old) for old, new in self.copies.items()))

    def again(self, change: Standing, start: nodes.Block = (), also: Rewriting | None = None) -> nodes.Block:
        """Return the task once more with its atomics replaced and only what these need of the rest, on copies.

        Args:
            change: returns the statements that replace an atomic.
            start: statements to begin each iteration with.
            also: returns the statements that replace any other statement.
        """
        body = replace_statements(self._body, self.atomics, change)
        body = (*start, *(body if also is None else walk.rewrite(body, also)))
        loop = self.loop or nodes.For((self.names.fresh("once", INTEGER),), ((ZERO, ONE),), (), True, self.line)
        # What the task itself changes is changed once, when it runs for good. Here nobody reads it afterwards, so that
        # stores which no candidate needs are dead, and the rest go to copies.
        others = self.changed - self.extremes.keys()
        statements = eliminate_dead_code([replace(loop, body=body)], private=others)
        copies = {name: self._copy(name) for name in sorted(others & walk.find_changed(statements))}
        arrays = (self.kernel.arrays[name] for name in copies)
        begun = [
            one for array in arrays for one in over_elements(array, self.names, self._build_copy(array), self.line)
        ]
        return (*begun, *with_names(statements, copies))

    @property
    def _body(self) -> nodes.Block:
        return self._slotted.body if self._slotted else self.body

    def _copy(self, name: str) -> str:
        if name not in self.copies:
            self.copies[name] = self.names.reserve_shared(f"{name}_copy")
        return self.copies[name]

    def _build_copy(self, array: nodes.Array) -> Change:
        return lambda index, entry: [
            nodes.Store(self._copy(array.name), index, entry, nodes.Load(array.name, index, entry, array.type))
        ]

    # What stands for an atomic ----------------------------------------------------------------

    def _find_winner(self, one: nodes.Atomic) -> Sequence[nodes.Stmt]:
        extreme = self.extremes[one.array]
        slot = self.slots.get(one.number)
        if slot is None or self.candidates is None:
            return [replace(one, array=extreme.winner)]
        value = self.names.local(f"candidate_{one.array}", extreme.array.type)
        kept = cast(value, self.candidates.type)
        return [
            nodes.Assign(value.name, cast(one.value, value.type), one.line),
            *self._where_kept(
                slot,
                nodes.Store(self.candidates.name, (slot,), (), kept, one.line),
                replace(one, array=extreme.winner, value=value),
            ),
        ]

    def _where_kept(self, slot: nodes.Local, *body: nodes.Stmt) -> Sequence[nodes.Stmt]:
        """Return statements that run if there is room for the candidate with this slot."""
        return body if self.end is None else [nodes.If(compare(Operator.LT, slot, self.end), body, (), body[0].line)]

    def _count_tie(self, one: nodes.Atomic) -> Sequence[nodes.Stmt]:
        more = replace(one, operator="add", array=self.extremes[one.array].ties, value=ONE)
        return self._if_won(one, lambda index: replace(more, index=index))

    def _add_share(self, one: nodes.Atomic) -> Sequence[nodes.Stmt]:
        extreme = self.extremes[one.array]

        def add(index: Index) -> nodes.Stmt:
            share = over(cast(one.value, extreme.array.type), self._ties(extreme, index, one.entry))
            return replace(one, operator="add", index=index, value=share)

        return self._if_won(one, add)

    def _if_won(self, one: nodes.Atomic, then: Callable[[Index], nodes.Stmt]) -> Sequence[nodes.Stmt]:
        """Return a statement that runs if a candidate won; the loads in its index are done once."""
        extreme = self.extremes[one.array]
        first: list[nodes.Stmt] = []
        here: list[nodes.Expr] = []
        for place in one.index:
            if walk.reads_memory(place):
                row = self.names.local(f"{one.array}_row", INTEGER)
                first.append(nodes.Assign(row.name, place, one.line))
                place = row
            here.append(place)
        index = tuple(here)
        slot = self.slots.get(one.number)
        # Not computed again where it was calculated: other last bits would not equal the winner.
        candidate = one.value
        if slot is not None and self.candidates is not None:
            candidate = nodes.Load(self.candidates.name, (slot,), (), self.candidates.type)
        won = compare(Operator.EQ, cast(candidate, extreme.array.type), extreme.load(extreme.winner, index, one.entry))
        taken = nodes.If(won, (then(index),), (), one.line)
        return [*first, *([taken] if slot is None else self._where_kept(slot, taken))]

    # What is done for every element -----------------------------------------------------------

    def over_all(self, change: Callable[[Extreme], Change]) -> nodes.Block:
        """Return a task for each array that runs the statements of `change` for every number of it."""
        blocks = (over_elements(one.array, self.names, change(one), self.line) for one in self.extremes.values())
        return tuple([one for block in blocks for one in block])

    def _begin(self, extreme: Extreme) -> Change:
        name = extreme.array.name
        return lambda index, entry: [nodes.Store(extreme.winner, index, entry, extreme.load(name, index, entry))]

    def _first_tie(self, extreme: Extreme) -> Change:
        """Count what stood in the array before the task as the first candidate."""

        def change(index: Index, entry: tuple[int, ...]) -> Sequence[nodes.Stmt]:
            won, lost = (nodes.Store(extreme.ties, index, entry, count) for count in (ONE, ZERO))
            return [nodes.If(extreme.stays(index, entry), (won,), (lost,))]

        return change

    def _build_share(self, extreme: Extreme) -> Change:
        array = extreme.array

        def change(index: Index, entry: tuple[int, ...]) -> Sequence[nodes.Stmt]:
            old = extreme.load(array.name, index, entry)
            share = nodes.Store(array.name, index, entry, over(old, self._ties(extreme, index, entry)))
            nothing = nodes.Store(array.name, index, entry, constant(0, array.type))
            return [nodes.If(extreme.stays(index, entry), (share,), (nothing,))]

        return change

    def _ties(self, extreme: Extreme, index: Index, entry: tuple[int, ...]) -> nodes.Expr:
        return cast(extreme.load(extreme.ties, index, entry), extreme.array.type)


def note_of(search: Search) -> str:
    """Describe what a search keeps, for `op.explain()`; "" if it keeps nothing."""
    if search.candidates is None:
        return ""
    names, size = ", ".join(f"`{name}`" for name in search.extremes), types.width(search.candidates.type) // 8
    return f"tape: every candidate value of {names}, to compare it with the result: {size} bytes"


_MOVES = frozenset({"neg", "abs", "min", "max"})
"""Operations on floats that round nothing."""


class _Exact:
    """The values that another kernel computes with the same bits, however its compiler reorders arithmetic.

    Both engines compile with fast arithmetic: a compiler may round `a * b + c` in one way in one loop, and in another
    way in another. So arithmetic on floats is not exact, but a move, a choice or an integer is.

        x[i], -x[i], max(x[i], y[i]), i + 1       exact
        x[i] * 2.0, exp(x[i])                     not exact

    Args:
        body: the statements.
        changed: arrays that they change.
    """

    def __init__(self, body: Sequence[nodes.Stmt], changed: Collection[str]) -> None:
        self._changed = changed
        self._inexact: set[str] = set()
        # A loop hands values back to statements above, so all are read until nothing is new.
        statements = [*walk.statements(body)]
        before = -1
        while len(self._inexact) > before:
            before = len(self._inexact)
            for one in statements:
                if isinstance(one, nodes.Assign) and not self.has(one.value):
                    self._inexact.add(one.name)
                elif isinstance(one, nodes.Draw | nodes.Decompose | nodes.Atomic):
                    self._inexact.update(walk.find_assigned(one))

    def has(self, expr: nodes.Expr) -> bool:
        """Return True if an expression is exact: loads and integers, negated and chosen, but no rounded arithmetic."""
        match expr:
            case nodes.Local(name):
                return name not in self._inexact
            # Another run may find another value there.
            case nodes.Load(array) if array in self._changed:
                return False
            case nodes.Unary() | nodes.Binary() if types.is_float(expr.type) and expr.operator not in _MOVES:
                return False
        return all(self.has(one) for one in walk.operands(expr))
