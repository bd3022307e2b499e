"""Accumulators: what is only added to, by a loop that hands it on or in memory. All partial sums have one adjoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ....ir import Operator, nodes, walk
from .._ssa import Step


def find_accumulators(loop: nodes.Loop) -> dict[str, frozenset[str]]:
    """Return the accumulators among what a loop carries: by head, the partial sums of one iteration, with the head.

    They are found forwards: whatever is computed from the head must be it plus something. Then an adjoint of 1 is
    carried backwards through them: where each of them gets 1 again, on every path, all have the sum's own adjoint.
    """
    candidates = _Candidates(loop)
    candidates.collect(loop.body)
    candidates.require_alone(loop)
    members, steps = candidates.find_members(), candidates.select_steps(loop.body)
    accumulators = {}
    for place, sums in members.items():
        one = loop.carried[place]
        last = _addend(one.next, sums)
        weights = {} if last is None else _carry_back(steps.get(place, []), sums, {last: 1})
        if weights == {one.head: 1}:
            accumulators[one.head] = frozenset(sums)
    return accumulators


class _Candidates:
    """What the steps of an iteration add to the locals that a loop carries: one walk for all of them.

    A set of these locals is a number whose bits are their places among what the loop carries. One walk for each of them
    would take quadratic time.

    Attributes:
        sums: for each partial sum, the locals that it may belong to.
        refused: the locals that are no accumulators.
    """

    def __init__(self, loop: nodes.Loop) -> None:
        self.sums = {one.head: 1 << place for place, one in enumerate(loop.carried)}
        self.refused = 0
        self._all = (1 << len(loop.carried)) - 1

    def collect(self, body: Sequence[Step]) -> None:
        """Collect the partial sums of locals in steps. Refuse a local if its partial sum is used for anything but a
        partial sum.
        """
        for step in body:
            if self.refused == self._all:
                return
            if isinstance(step, nodes.Assign):
                used, summed = self._split(step.value)
                self.refused |= used & ~summed
                self._add(step.name, summed)
            elif isinstance(step, nodes.If):
                # A condition that depends on the sum makes the result another function than a sum.
                self.refused |= self._find_used(walk.locals_read(step))
                self.collect(step.body)
                self.collect(step.orelse)
            elif isinstance(step, nodes.Loop):
                self._collect_loop(step)
            else:
                self.refused |= self._find_used(walk.locals_read(step))

    def _collect_loop(self, loop: nodes.Loop) -> None:
        """Add what an inner loop adds to partial sums.

        It may not use one in its bounds, its body, or what else it carries.
        """
        is_begun = any(isinstance(one.first, nodes.Local) and one.first.name in self.sums for one in loop.carried)
        accumulators = find_accumulators(loop) if is_begun else {}
        exprs = [bound for pair in loop.bounds for bound in pair]
        for one in loop.carried:
            if isinstance(one.first, nodes.Local) and one.head in accumulators:
                self._add(one.last, self.sums.get(one.first.name, 0))
            else:
                exprs.append(one.first)
        self.refused |= self._find_used(walk.locals_in(exprs) | walk.find_read(loop.body))

    def require_alone(self, loop: nodes.Loop) -> None:
        """Refuse locals whose partial sum is passed to the next iteration in a variable other than the accumulator."""
        for place, one in enumerate(loop.carried):
            self.refused |= self._find_used(walk.locals_in([one.next])) & ~(1 << place)
        if loop.exit is not None:
            self.refused |= self._find_used(walk.locals_in([loop.exit]))

    def find_members(self) -> dict[int, set[str]]:
        """Return the partial sums of each accumulator that is not refused, by the accumulator's position."""
        members: dict[int, set[str]] = {}
        for name in self.sums:
            for place in self._places(name):
                members.setdefault(place, set()).add(name)
        return members

    def select_steps(self, body: Sequence[Step]) -> dict[int, list[Step]]:
        """Return the steps that assign partial sums, by the position of the accumulator; refused ones are left out."""
        selected: dict[int, list[Step]] = {}
        for step in body:
            if isinstance(step, nodes.Assign):
                for place in self._places(step.name):
                    selected.setdefault(place, []).append(step)
            elif isinstance(step, nodes.If):
                then, other = (self.select_steps(arm) for arm in (step.body, step.orelse))
                for place in then | other:
                    arms = tuple(then.get(place, ())), tuple(other.get(place, ()))
                    selected.setdefault(place, []).append(replace(step, body=arms[0], orelse=arms[1]))
            elif isinstance(step, nodes.Loop):
                carried: dict[int, list[nodes.CarriedLocal]] = {}
                for one in step.carried:
                    for place in self._places(one.last):
                        carried.setdefault(place, []).append(one)
                for place, some in carried.items():
                    selected.setdefault(place, []).append(replace(step, carried=tuple(some), body=()))
        return selected

    def _places(self, name: str) -> Iterator[int]:
        left = self.sums.get(name, 0) & ~self.refused
        while left:
            lowest = left & -left
            yield lowest.bit_length() - 1
            left ^= lowest

    def _add(self, name: str, summed: int) -> None:
        summed &= ~self.refused
        if summed:
            self.sums[name] = self.sums.get(name, 0) | summed

    def _find_used(self, names: Iterable[str]) -> int:
        used = 0
        for name in names:
            used |= self.sums.get(name, 0)
        return used

    def _split(self, expr: nodes.Expr) -> tuple[int, int]:
        """Return two sets of accumulators, as bits: those whose partial sums an expression uses, and those whose
        partial sum it is (see `_addend`).
        """
        match expr:
            case nodes.Local(name):
                used = self.sums.get(name, 0)
                return used, used
            case nodes.Binary(Operator.ADD | Operator.SUB as word, left, right) if left.type == right.type == expr.type:
                (in_left, of_left), (in_right, of_right) = self._split(left), self._split(right)
                summed = of_left & ~in_right
                # Of a difference only the left side has the adjoint of the result; the other one has its negative.
                return in_left | in_right, summed | (of_right & ~in_left if word is Operator.ADD else 0)
        return self._find_used(walk.locals_in([expr])), 0


def _carry_back(body: Sequence[Step], members: set[str], weights: dict[str, int]) -> dict[str, int]:
    """Return how often the sum's adjoint reaches each partial sum before steps, from how often it does after them.

    Return an empty dict if a step's own partial sum is reached otherwise than once.
    """
    counts = dict(weights)
    for step in reversed(body):
        if isinstance(step, nodes.Assign) and step.name in members:
            source = _addend(step.value, members)
            # A partial sum that is never used again, or added twice, has
            # the weight 0 or 2: then its adjoint is not the sum's.
            if source is None or counts.pop(step.name, 0) != 1:
                return {}
            counts[source] = counts.get(source, 0) + 1
        elif isinstance(step, nodes.If):
            arms = [_carry_back(arm, members, counts) for arm in (step.body, step.orelse)]
            # Weights must be the same on every path, since one adjoint stands for all of them.
            if arms[0] != arms[1]:
                return {}
            counts = arms[0]
        elif isinstance(step, nodes.Loop):
            for one in step.carried:
                if one.last in members:
                    assert isinstance(one.first, nodes.Local)
                    if counts.pop(one.last, 0) != 1:
                        return {}
                    counts[one.first.name] = counts.get(one.first.name, 0) + 1
    return counts


def _addend(expr: nodes.Expr, members: set[str]) -> str | None:
    """Return the partial sum that an expression adds something to; None if it is not such a sum."""
    match expr:
        case nodes.Local(name) if name in members:
            return name
        case nodes.Binary(Operator.ADD | Operator.SUB, left, right) if left.type == right.type == expr.type:
            in_left, in_right = (not members.isdisjoint(walk.locals_in([one])) for one in (left, right))
            if in_left and not in_right:
                return _addend(left, members)
            # Of a difference only the left side has the adjoint of the result; the other one has its negative.
            if in_right and not in_left and expr.operator == Operator.ADD:
                return _addend(right, members)
    return None


# In memory ----------------------------------------------------------------------------------------


def find_sums_in_place(steps: Sequence[Step]) -> dict[int, str]:
    """Find stores of the element's own value plus something, `x[i] = x[i] + e`; return by number the loaded local.

    The element's adjoint is the same before and after: nothing is taken from it, cleared and added again.
    """
    # A value that is read elsewhere, too, gets an adjoint from there, which must be added to that of the element.
    reads = Counter(part.name for part in walk.parts_in(steps) if isinstance(part, nodes.Local))
    blocks = (steps, *(block for step in walk.statements(steps) for block in walk.bodies(step)))
    return {number: name for block in blocks for number, name in _in_block(block, reads)}


def _in_block(block: Sequence[Step], reads: Counter[str]) -> Iterator[tuple[int, str]]:
    # Locals that are an element plus something, each with the load and the local of the element itself.
    sums: dict[str, tuple[nodes.Load, str]] = {}
    by_array: dict[str, list[str]] = {}
    for step in block:
        if isinstance(step, nodes.Assign):
            parts = [name for name in walk.locals_in([step.value]) if name in sums and reads[name] == 1]
            if isinstance(step.value, nodes.Load):
                sums[step.name] = step.value, step.name
                by_array.setdefault(step.value.array, []).append(step.name)
            elif len(parts) == 1 and _addend(step.value, {parts[0]}) is not None:
                sums[step.name] = sums[parts[0]]
                by_array[sums[step.name][0].array].append(step.name)
            continue
        if isinstance(step, nodes.Store) and isinstance(step.value, nodes.Local) and reads[step.value.name] == 1:
            load, name = sums.get(step.value.name, (None, ""))
            if load is not None and (load.array, load.index, load.entry) == (step.array, step.index, step.entry):
                yield step.number, name
        # After a change of the array, what was loaded need not be the element's value any more.
        for array in walk.find_changed([step]):
            for name in by_array.pop(array, ()):
                sums.pop(name, None)
