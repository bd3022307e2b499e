"""Statements of an iteration, written for all lanes of a block: branches as masks, loops until no lane is active."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ....ir import (
    FALSE,
    TRUE,
    Names,
    Operator,
    Type,
    both,
    cast,
    constant,
    integer,
    nodes,
    number,
    opposite,
    or_else,
    walk,
)
from .._parts import FUNCTIONS, assign, moves, run_lanes
from ._loops import has_break, may_trap, operations
from ._sharing import Sharing


def select_changed(mask: nodes.Expr, value: nodes.Expr, old: nodes.Local) -> nodes.Expr:
    """Return a local's new value in the lanes of a mask, its old one in others.

    Where something is added to it, or it is multiplied, others add 0 or multiply by 1: a choice between old and new
    values that is stored where the old ones were becomes, in LLVM 22, a masked store, which is slow on CPUs with AVX2.
    A zero may lose its sign by that, as by the engines' fast arithmetic.
    """
    match value:
        case nodes.Binary(Operator.ADD | Operator.SUB | Operator.MUL as operator, nodes.Local(old.name), change):
            neutral = constant(1 if operator == "*" else 0, change.type)
            return replace(value, right=select(mask, change, neutral))
    return select(mask, value, old)


def select(mask: nodes.Expr, value: nodes.Expr, otherwise: nodes.Expr) -> nodes.Expr:
    """Return one of two values, the first cast to the other's type; truths by logic, which engines select less well."""
    if mask == TRUE:
        return value
    if otherwise.type == Type.U1:
        return or_else(both(mask, value), nodes.Binary(Operator.AND, opposite(mask), otherwise, Type.U1))
    return nodes.Select(mask, cast(value, otherwise.type), otherwise, otherwise.type)


_BRIEF = 12
"""A branch of fewer operations runs in all lanes: to ask whether one takes it costs as much."""


@dataclass
class Block:
    """Statements of one level that are being written: those before the open loop over lanes, it, and those behind.

    Attributes:
        statements: finished ones.
        before: of the block, for the loop over lanes.
        lanes: the open loop over lanes, straight-line and without stores.
        behind: what runs after it: of the block where the mask is None, else of each lane by its mask.
    """

    statements: list[nodes.Stmt] = field(default_factory=list)
    before: list[nodes.Stmt] = field(default_factory=list)
    lanes: list[nodes.Stmt] = field(default_factory=list)
    behind: list[tuple[nodes.Expr | None, nodes.Stmt]] = field(default_factory=list)


class Writer:
    """Writes statements for the lanes of a block.

    Attributes:
        block: the statements of the level that is being written.
        within: what must hold for lanes to read at their own places, active or not.
        own: for each local that lanes are to agree on, the one that has what each lane would give it.
        own_elements: locals that have what loads at a lane's own places would give.
        lane, size: the index of loops over lanes, and where it ends.
    """

    def __init__(self, sharing: Sharing, names: Names, size: nodes.Local) -> None:
        self.sharing = sharing
        self.names = names
        self.lane, self.size = names.local("lane", Type.I32), size
        self.block = Block()
        self.within: dict[nodes.Expr, None] = {}
        self.own: dict[str, str] = {}
        self.own_elements: dict[nodes.Load, nodes.Local] = {}
        self._declared: dict[str, nodes.Expr] = {}
        self._again: list[nodes.Local | None] = []

    def run(self, body: Sequence[nodes.Stmt], mask: nodes.Expr, *, is_open: bool = False) -> nodes.Expr:
        """Write statements for the lanes of a mask. Return the mask of those that go on after them.

        With `is_open`, locals that these statements declare stay known afterwards.
        """
        outer = set(self._declared)
        for at, one in enumerate(body):
            if mask == FALSE:
                break
            before, mask = mask, self.statement(one, mask)
            rest = body[at + 1 :]
            # Here lanes may have ended. If all have, the rest must not run where it reads or changes what lanes share.
            if mask not in (before, FALSE) and self.needs_lane(rest):
                mask = self.guard(rest, mask)
                break
        if not is_open:
            self._declared = {name: given for name, given in self._declared.items() if name in outer}
        return mask

    def statement(self, one: nodes.Stmt, mask: nodes.Expr) -> nodes.Expr:
        """Write a statement for the lanes of a mask. Return the mask of those that go on after it."""
        match one:
            case nodes.Break():
                return FALSE
            case nodes.Continue():
                again = self._again[-1] if self._again else None
                if again is not None:
                    self.give(again, or_else(again, mask))
                return FALSE
            case nodes.If():
                return self.branch(one, mask)
            case nodes.For() | nodes.While() if not self.sharing.has_loop_vectors(one):
                self.run_one_by_one(one, mask)
            case nodes.For() if self.sharing.is_shared_loop(one):
                self.write_shared_loop(one, mask)
            case nodes.For():
                self.write_own_loop(one, mask)
            case nodes.While():
                self.repeat(one.body, mask)
            case nodes.Assign():
                self.assign(one, mask)
            case nodes.Store() | nodes.Atomic():
                self.store(one, mask)
            case other:
                raise AssertionError(
                    f"unexpected {other} in a loop that was given lanes; an earlier check should have excluded it"
                )
        return mask

    def assign(self, one: nodes.Assign, mask: nodes.Expr) -> None:
        """Give a local a value in the lanes of a mask, or one that all lanes share."""
        if one.name in self.sharing.agreed:
            each = self.own[one.name] = self.names.fresh(f"{one.name}_each", Type.I32)
            self.sharing.varying.add(each)
            one = replace(one, name=each)
        if one.name not in self.sharing.varying:
            self.block.before.append(one)
        elif not self.sharing.has_vectors(one.value):
            self._declared.setdefault(one.name, mask)
            self.run_one_by_one(one, mask)
        else:
            # A local's first value needs no choice: lanes outside of the mask have no old one, and never read it.
            value, kind = self.guard_expression(one.value, mask), self.names.types[one.name]
            if self._declared.setdefault(one.name, mask) != mask:
                value = select_changed(mask, value, nodes.Local(one.name, kind))
            self.add(replace(one, value=value))

    def add(self, one: nodes.Assign) -> None:
        """Add a statement to the open loop over lanes; to a new one if it depends on what waits behind the open one."""
        reads, arrays = walk.locals_in([one.value]), walk.find_loaded([one])
        waiting = [part for _, part in self.block.behind]
        masks = [mask for mask, _ in self.block.behind if mask is not None]
        if (
            walk.find_defined(waiting) & {*reads, one.name}
            or one.name in walk.find_mentioned(waiting) | walk.locals_in(masks)
            or arrays & walk.find_changed(waiting)
        ):
            self.flush()
        self.block.lanes.append(one)

    def guard_expression(self, expr: nodes.Expr, mask: nodes.Expr) -> nodes.Expr:
        """Return an expression for all lanes: inactive ones load element 0; functions become arithmetic."""
        if isinstance(expr, nodes.Load) and expr in self.own_elements:
            return self.own_elements[expr]
        if isinstance(expr, nodes.Unary) and moves(expr):
            return replace(expr, operator=FUNCTIONS[expr.operator], value=self.guard_expression(expr.value, mask))
        rebuilt = walk.rebuild(expr, lambda part: self.guard_expression(part, mask))
        if not isinstance(rebuilt, nodes.Load) or mask == TRUE or self.sharing.is_shared_index(rebuilt):
            return rebuilt
        # Checked once for each block instead: a plain vector is loaded then, where a guarded index is a gather.
        if self.ensure_element_exists(rebuilt):
            return rebuilt
        return replace(rebuilt, index=tuple([select(mask, part, constant(0, part.type)) for part in rebuilt.index]))

    def give(self, local: nodes.Local, value: nodes.Expr) -> None:
        """Assign a value to a local, made by this pass, in all lanes; note that it may differ between lanes."""
        self.sharing.varying.add(local.name)
        self.add(nodes.Assign(local.name, value))

    def bind_fresh(self, wish: str, value: nodes.Expr) -> nodes.Expr:
        """Return a fresh local with this value in each lane; a value that needs no name stays."""
        is_steady = isinstance(value, nodes.Local) and self.sharing.definitions[value.name] == 1
        if (
            isinstance(value, nodes.Const)
            or is_steady
            or (self.sharing.is_shared(value) and not walk.reads_memory(value))
        ):
            return value
        local = self.names.local(wish, value.type)
        self.give(local, value)
        return local

    def reduce(
        self, operator: Operator, value: nodes.Expr, begin: nodes.Expr, local: nodes.Local | None = None
    ) -> nodes.Local:
        """Combine a value of all lanes by an operator into one number of the block, which starts as `begin`."""
        total = local or self.names.local("of_lanes", value.type)
        self.add(nodes.Assign(total.name, nodes.Binary(operator, total, value, total.type)))
        self.block.before.append(nodes.Assign(total.name, begin))
        return total

    def count(self, mask: nodes.Expr, local: nodes.Local | None = None) -> nodes.Local:
        """Return a local with the number of lanes for which a mask is True."""
        return self.reduce(Operator.ADD, number(1) if mask == TRUE else nodes.Cast(mask, Type.I32), number(0), local)

    def run_one_by_one(self, one: nodes.Stmt, mask: nodes.Expr) -> None:
        """Run a statement as it is written for one active lane after the other."""
        self.block.behind.append((mask, one))

    def store(self, one: nodes.Store | nodes.Atomic, mask: nodes.Expr) -> None:
        """Change memory: behind the loop over lanes, which hands on what there is to store, and where."""
        if not all(map(self.sharing.has_vectors, walk.expressions(one))):
            self.run_one_by_one(one, mask)
        # All lanes add to one element: their sum is added, by one atomic.
        elif self.sharing.is_shared_sum(one):
            kind = one.value.type
            value = select(mask, self.guard_expression(one.value, mask), constant(0, kind))
            total = self.reduce(Operator.ADD, value, constant(0, kind))
            self.block.behind.append((None, replace(one, value=total)))
        else:
            value = self.bind_fresh("stored", self.guard_expression(one.value, mask))
            index = tuple([self.bind_fresh("place", self.guard_expression(part, mask)) for part in one.index])
            self.run_one_by_one(replace(one, index=index, value=value), mask)

    def branch(self, one: nodes.If, mask: nodes.Expr) -> nodes.Expr:
        """Write a branch for the lanes that take it. Return the mask of those that go on after it."""
        exits = [any(walk.jumps_in(body)) for body in (one.body, one.orelse)]
        # All lanes take the same side: it stays a branch. With a jump in it, they end together, by the mask.
        if self.sharing.is_shared(one.condition) and not any(exits):
            self.flush()
            bodies = [self.inside(lambda body=body: self.run(body, mask)) for body in (one.body, one.orelse)]
            self.block.statements.append(replace(one, body=bodies[0], orelse=bodies[1]))
            return mask
        condition = self.names.local("holds", Type.U1)
        self.sharing.varying.add(condition.name)
        self.assign(nodes.Assign(condition.name, one.condition, one.line), mask)
        holds, fails = condition, opposite(condition)
        if mask != TRUE:
            holds = self.bind_fresh("lanes", both(mask, condition))
        fails = self.bind_fresh("lanes", both(mask, fails)) if one.orelse or any(exits) else FALSE
        goes_on = self.under(one.body, holds, is_likely=bool(one.orelse) or exits[1])
        otherwise = self.under(one.orelse, fails, is_likely=True)
        return self.bind_fresh("lanes", or_else(goes_on, otherwise)) if any(exits) else mask

    def under(self, body: Sequence[nodes.Stmt], mask: nodes.Expr, *, is_likely: bool) -> nodes.Expr:
        """Write one side of a branch, guarded if it must not run without a lane, or if that may save much."""
        is_brief = is_likely or operations(body) <= _BRIEF
        return self.run(body, mask) if is_brief and not self.needs_lane(body) else self.guard(body, mask)

    def needs_lane(self, body: Sequence[nodes.Stmt]) -> bool:
        """Return True if statements must not run without an active lane: they change what lanes share, or read an
        element that may not exist then. Where possible, let the block ensure that it exists.
        """
        changes = (nodes.For, nodes.While, nodes.Atomic)
        return any(isinstance(one, changes) for one in walk.statements(body)) or any(
            self.sharing.is_shared_index(part)
            and (part.array in self.sharing.stored or not self.ensure_element_exists(part))
            if isinstance(part, nodes.Load)
            else may_trap(part)
            for part in walk.parts_in(body)
        )

    def ensure_element_exists(self, load: nodes.Load) -> bool:
        """Add a load's bounds checks to those of its block, `within`. Return False if a block cannot check them."""
        tests = self.sharing.bounds_of(load)
        self.within |= dict.fromkeys(tests or ())
        return tests is not None

    def guard(self, body: Sequence[nodes.Stmt], mask: nodes.Expr) -> nodes.Expr:
        """Write statements that run if a mask has a lane. Return the mask of the lanes that go on after them."""
        alive = self.count(mask)
        goes_on: nodes.Local | None = None
        if any(walk.jumps_in(body)):
            goes_on = self.names.local("lanes", Type.U1)
            self.give(goes_on, mask)
        self.flush()

        def write() -> None:
            after = self.run(body, mask)
            if goes_on is not None:
                self.give(goes_on, after)

        self.block.statements.append(nodes.If(nodes.Binary(Operator.NE, alive, number(0), Type.U1), self.inside(write)))
        return mask if goes_on is None else goes_on

    def inside(self, write: Callable[[], object]) -> nodes.Block:
        """Return the statements that `write` writes, as a block of its own."""
        outer, self.block = self.block, Block()
        write()
        self.flush()
        statements, self.block = self.block.statements, outer
        return tuple(statements)

    def body_of_loop(self, body: Sequence[nodes.Stmt], active: nodes.Expr) -> nodes.Expr:
        """Write an iteration for active lanes. Return the mask of those that may go on with the next one."""
        again = None
        if any(isinstance(one, nodes.Continue) for one in walk.jumps_in(body)):
            again = self.names.local("again", Type.U1)
            self.give(again, FALSE)
        self._again.append(again)
        after = self.run(body, active)
        self._again.pop()
        return after if again is None else or_else(after, again)

    def repeat(
        self, body: Sequence[nodes.Stmt], mask: nodes.Expr, index: nodes.Local | None = None, end: nodes.Expr = FALSE
    ) -> None:
        """Write a loop until no lane is active; with an index of each lane's own, only up to an end."""

        def within(active: nodes.Expr) -> nodes.Expr:
            return active if index is None else both(active, nodes.Binary(Operator.LT, index, end, Type.U1))

        active = self.names.local("active", Type.U1)
        self.give(active, within(mask))
        alive = self.count(active)
        self.flush()

        def write() -> None:
            self.block.statements.append(_leave_without(alive))
            after = self.body_of_loop(body, active)
            if index is not None:
                self.give(index, integer(Operator.ADD, index, number(1)))
            self.give(active, within(after))
            self.count(active, alive)

        # A loop that counts: without a number of its own LLVM 15 makes one loop of it and a loop over lanes inside. The
        # `while` around it begins again should the count run out.
        turns = run_lanes(self.names.local("turn", Type.I32), number(0), number(2**30), self.inside(write))
        self.block.statements.append(nodes.While((turns, _leave_without(alive))))

    def write_own_loop(self, one: nodes.For, mask: nodes.Expr) -> None:
        """Write a serial loop inside a lane whose bounds differ between lanes: each lane gets its own index."""
        # A fresh one: another loop of this name may run as it is written, for one lane after the other.
        index, (begin, end) = self.names.local(one.names[0], Type.I32), one.bounds[0]
        known = {one.names[0]: index}
        body = [walk.transform(part, lambda expr: walk.substitute(expr, known)) for part in one.body]
        last = self.bind_fresh("end", self.guard_expression(end, mask))
        self.give(index, self.guard_expression(begin, mask))
        self.repeat(body, mask, index, last)

    def write_shared_loop(self, one: nodes.For, mask: nodes.Expr) -> None:
        """Write a loop by one index. Lanes that are through with it earlier, or left it, are inactive in the rest."""
        begin, end = one.bounds[0]
        place = nodes.Local(one.names[0], Type.I32)
        may_end = has_break(one.body)
        is_even = all(map(self.sharing.is_shared, walk.expressions(one)))
        bounds = one.bounds
        last = end
        # As long as the longest lane's.
        if not is_even:
            last = self.bind_fresh("end", self.guard_expression(end, mask))
            most = self.reduce(Operator.MAX, select(mask, last, begin), begin)
            bounds = ((begin, most),)
        active = alive = None
        if may_end:
            active = self.names.local("active", Type.U1)
            self.give(active, mask)
            alive = self.names.local("of_lanes", Type.I32)
        self.flush()
        names, before = one.names, list[nodes.Stmt]()
        # Backwards from the longest lane's last place: a shorter lane waits until the loop comes to its own.
        if place.name in self.sharing.descending:
            back = self.names.local("back", Type.I32)
            names = (back.name,)
            most = bounds[0][1]
            before = [assign(place, integer(Operator.SUB, integer(Operator.SUB, most, number(1)), back))]

        def write() -> None:
            lanes: nodes.Expr = active or mask
            self.block.before += before
            if not is_even:
                lanes = self.bind_fresh("lanes", both(lanes, nodes.Binary(Operator.LT, place, last, Type.U1)))
            if alive is None or active is None:
                self.body_of_loop(one.body, lanes)
                return
            if not is_even:
                self.count(lanes, alive)
                self.flush()
                self.block.statements.append(_leave_without(alive))
            self.give(active, self.body_of_loop(one.body, lanes))
            self.count(active, alive)
            self.flush()
            self.block.statements.append(_leave_without(alive))

        self.block.statements.append(replace(one, names=names, bounds=bounds, body=self.inside(write)))

    def flush(self) -> None:
        """Finish the open loop over lanes, and what waits behind it: neighbors by one mask share a branch."""
        block = self.block
        block.statements += block.before
        if block.lanes:
            block.statements.append(self.over_lanes(block.lanes))
        for is_of_block, items in groupby(block.behind, key=lambda item: item[0] is None):
            if is_of_block:
                block.statements += [one for _, one in items]
                continue
            body: list[nodes.Stmt] = []
            for mask, group in groupby(items, key=lambda item: item[0] or TRUE):
                part = [one for _, one in group]
                body += part if mask == TRUE else [nodes.If(mask, tuple(part))]
            block.statements.append(self.over_lanes(body))
        block.before, block.lanes, block.behind = [], [], []

    def over_lanes(self, body: Sequence[nodes.Stmt]) -> nodes.For:
        """Return a loop that runs statements for each lane of a block."""
        return run_lanes(self.lane, number(0), self.size, body)


def _leave_without(alive: nodes.Expr) -> nodes.If:
    return nodes.If(nodes.Binary(Operator.EQ, alive, number(0), Type.U1), (nodes.Break(),))
