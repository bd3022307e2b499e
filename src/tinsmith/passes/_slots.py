"""Slots: a number for each run of certain statements in an iteration.

    for j in 0 .. m:                  ->   for j in 0 .. m:
        if c: a = random f32                   if c: slot_a = next_slot + 2 * j; a = random f32
        b = random f32                         slot_b = next_slot + 2 * j + 1; b = random f32
                                           next_slot = next_slot + 2 * max(m, 0)

Wherever possible a slot is computed from the place in the text and the loops' variables alone. Then a branch that is
taken the other way in another kernel, for the last bit of a number, moves nobody else's slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ..ir import ONE, ZERO, Names, Operator, Type, constant, integer, iteration_number, minus, nodes, plus, times, walk

Kind = TypeVar("Kind", bound=nodes.Stmt)


@dataclass(frozen=True)
class SlotAssignment:
    """Statements of an iteration with a slot for each of some.

    Attributes:
        body: the statements; a local gets the slot before each of those.
        counter: the local that says which slot is the next; who uses `body` gives it its first value.
        slots: the locals with the slots, by the statement's number.
    """

    body: nodes.Block
    counter: str
    slots: Mapping[int, nodes.Local]


def assign_slots(body: Sequence[nodes.Stmt], wanted: Mapping[int, str], names: Names) -> SlotAssignment:
    """Give slots to the statements whose numbers are `wanted`, each with the word that its slot is named after."""
    # Where no loop repeats them, slots are the counter plus a constant, and the counter need not advance.
    making = _Slotting(wanted, names)
    statements = making.flat(tuple(body), making.counter)[0] if making.is_flat(body) else making.block(tuple(body))
    return SlotAssignment(statements, making.counter.name, making.slots)


@dataclass
class _Slotting:
    words: Mapping[int, str]
    names: Names
    slots: dict[int, nodes.Local] = field(default_factory=dict)
    counter: nodes.Local = field(init=False)

    def __post_init__(self) -> None:
        self.counter = self.names.local("next_slot", Type.I32)

    def has_any(self, body: Sequence[nodes.Stmt]) -> bool:
        return any(one.number in self.words for one in walk.statements(body))

    def is_flat(self, body: Sequence[nodes.Stmt]) -> bool:
        """Return True if no loop in the statements has statements with slots in it."""
        loops = (one for one in walk.statements(body) if isinstance(one, nodes.For | nodes.While))
        return not any(self.has_any(one.body) for one in loops)

    def block(self, body: nodes.Block) -> nodes.Block:
        """Rewrite statements so that those with slots advance the slot counter."""
        statements: list[nodes.Stmt] = []
        for one in body:
            if not self.has_any([one]):
                statements.append(one)
            elif isinstance(one, nodes.For) and self.is_flat(one.body):
                statements += self.innermost(one)
            # A branch has slots for both sides, whichever runs. A jump in it would skip the advance after the branch:
            # then each side advances the counter itself.
            elif self.is_flat([one]) and not walk.has_jumps([one]):
                inside, count = self.flat((one,), self.counter)
                statements += [*inside, self.advance(constant(count, Type.I32))]
            else:
                statements.append(walk.with_bodies(one, self.block))
        return tuple(statements)

    def advance(self, by: nodes.Expr) -> nodes.Stmt:
        return nodes.Assign(self.counter.name, plus(self.counter, by))

    def flat(self, body: nodes.Block, first: nodes.Expr) -> tuple[nodes.Block, int]:
        """Return statements whose slots follow `first` in the order of the text, and how many there are."""
        statements: list[nodes.Stmt] = []
        count = 0
        for one in body:
            here = plus(first, constant(count, Type.I32))
            if one.number in self.words:
                self.slots[one.number] = slot = self.names.local(f"slot_{self.words[one.number]}", Type.I32)
                statements += [nodes.Assign(slot.name, here, one.line), one]
                count += 1
            elif isinstance(one, nodes.If):
                then, more = self.flat(one.body, here)
                other, rest = self.flat(one.orelse, plus(here, constant(more, Type.I32)))
                statements.append(replace(one, body=then, orelse=other))
                count += more + rest
            else:
                statements.append(one)
        return tuple(statements), count

    def innermost(self, loop: nodes.For) -> list[nodes.Stmt]:
        """Return a loop whose iterations all have the same number of slots."""
        # Its bounds are read three times, at last when the body may have changed what they are made of: so in locals.
        before: list[nodes.Stmt] = []
        bounds = []
        for pair in loop.bounds:
            ends = []
            for bound in pair:
                if not isinstance(bound, nodes.Const | nodes.Size | nodes.Argument):
                    name = self.names.fresh("bound", Type.I32)
                    before.append(nodes.Assign(name, bound, loop.line))
                    bound = nodes.Local(name, Type.I32)
                ends.append(bound)
            bounds.append((ends[0], ends[1]))
        count = sum(one.number in self.words for one in walk.statements(loop.body))
        each = constant(count, Type.I32)
        body, _ = self.flat(loop.body, plus(self.counter, times(iteration_number(loop.names, bounds), each)))
        moved = self.advance(times(trips_of(bounds), each))
        return [*before, replace(loop, bounds=tuple(bounds), body=body), moved]


def trips_of(bounds: Sequence[tuple[nodes.Expr, nodes.Expr]]) -> nodes.Expr:
    """Return the number of a loop's iterations; 0 if an end lies before its begin."""
    trips: nodes.Expr = ONE
    for first, end in bounds:
        trips = times(trips, integer(Operator.MAX, minus(end, first), ZERO))
    return trips


def replace_statements(
    body: Sequence[nodes.Stmt], wanted: Mapping[int, Kind], change: Callable[[Kind], Sequence[nodes.Stmt]]
) -> nodes.Block:
    """Replace the statements whose numbers are `wanted` by what `change` returns for them."""
    return walk.rewrite(body, lambda one: change(wanted[one.number]) if one.number in wanted else (one,))
