"""Accumulators: what is only added to, by a loop that hands it on or in memory. All partial sums have one adjoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ....ir import Operator, nodes, walk
from .._ssa import Step


def find_partial_sums(loop: nodes.Loop, carried: nodes.CarriedLocal) -> frozenset[str]:
    """Return the partial sums of an accumulator in one iteration, with its head; an empty set if it is not one.

    They are found forwards: whatever is computed from the head must be it plus something. Then an adjoint of 1 is
    carried backwards through them: where each of them gets 1 again, on every path, all have the sum's own adjoint.
    """
    members = {carried.head}
    if not _collect(loop.body, members) or not _reads_alone(loop, carried, members):
        return frozenset()
    last = _addend(carried.next, members)
    weights = {} if last is None else _carry_back(loop.body, members, {last: 1})
    return frozenset(members) if weights == {carried.head: 1} else frozenset()


def _reads_alone(loop: nodes.Loop, carried: nodes.CarriedLocal, members: set[str]) -> bool:
    """Return True if an iteration hands on no partial sum but as the accumulator."""
    others = [one.next for one in loop.carried if one is not carried]
    return members.isdisjoint(walk.locals_in(others if loop.exit is None else [*others, loop.exit]))


def _collect(body: Sequence[Step], members: set[str]) -> bool:
    """Add the partial sums of steps to those known; False where one is used for anything but another one."""
    for step in body:
        if isinstance(step, nodes.Assign):
            if members.isdisjoint(walk.locals_in([step.value])):
                continue
            if _addend(step.value, members) is None:
                return False
            members.add(step.name)
        elif isinstance(step, nodes.If):
            # A condition that depends on the sum makes the result another function than a sum.
            if not members.isdisjoint(walk.locals_read(step)):
                return False
            if not _collect(step.body, members) or not _collect(step.orelse, members):
                return False
        elif isinstance(step, nodes.Loop):
            # An inner loop may add to the sum in its turn; it may not use
            # it in its bounds, its body, or what else it carries.
            inner = list(_inner_accumulators(step, members))
            begun = [one.first for one in step.carried if one not in inner]
            reads = walk.locals_in([*begun, *(bound for pair in step.bounds for bound in pair)])
            if not members.isdisjoint(reads | walk.find_read(step.body)):
                return False
            members |= {one.last for one in inner}
        elif not members.isdisjoint(walk.locals_read(step)):
            return False
    return True


def _inner_accumulators(loop: nodes.Loop, members: set[str]) -> Iterator[nodes.CarriedLocal]:
    """Yield what an inner loop begins with a partial sum, and only adds to."""
    for one in loop.carried:
        if isinstance(one.first, nodes.Local) and one.first.name in members and find_partial_sums(loop, one):
            yield one


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
    for step in block:
        if isinstance(step, nodes.Assign):
            parts = [name for name in walk.locals_in([step.value]) if name in sums and reads[name] == 1]
            if isinstance(step.value, nodes.Load):
                sums[step.name] = step.value, step.name
            elif len(parts) == 1 and _addend(step.value, {parts[0]}) is not None:
                sums[step.name] = sums[parts[0]]
            continue
        if isinstance(step, nodes.Store) and isinstance(step.value, nodes.Local) and reads[step.value.name] == 1:
            load, name = sums.get(step.value.name, (None, ""))
            if load is not None and (load.array, load.index, load.entry) == (step.array, step.index, step.entry):
                yield step.number, name
        # After a change of the array, what was loaded need not be the element's value any more.
        changed = walk.find_changed([step])
        sums = {name: entry for name, entry in sums.items() if entry[0].array not in changed}
