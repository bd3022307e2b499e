"""Edges: a loop with branches for its first and last iterations, as a loop over the middle and one over each end.

    for i in range(n):                        for i in range(0, min(1, n)):              # as it was written
        f = 0.0                                   ...
        if i > 0:                             for i in range(min(1, n), n - 1):          # the middle
            f -= x[i] - x[i - 1]       ->         f = -(x[i] - x[i - 1])
        if i < n - 1:                             f += x[i + 1] - x[i]
            f += x[i + 1] - x[i]                  y[i] = f
        y[i] = f                              for i in range(max(min(1, n), n - 1), n):  # as it was written
                                                  ...

This is index-set splitting. The middle is what no condition on the loop's variables tells apart: conditions are known
there, and so are an index that is held inside an array, `max(i - 1, 0)`, and one that goes round, `(i + 1) % n`. Where
all branches go, the middle can run in machine vectors (`_elementwise`). Ends are of a known number of iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from ...analyses import affine, definitions, find_owned, single_definitions
from ...ir import AffineIndex, Operator, Type, both, compare, constant, integer, nodes, operators, shift_by, walk
from ..polish import declare_locals, eliminate_dead_code

_WIDEST = 64
"""Iterations that an end may have along an axis."""
_MOST_SERIAL_NAMES = 2
"""Loops over so many names at most have ends so short that waking threads for them would take longer."""


Ends = Mapping[tuple[str, bool], int]
"""How many iterations to leave out of a loop over a name: at its begin (False) or at its end (True)."""


class _Answer(NamedTuple):
    """What a condition is in the middle, and the ends outside of it."""

    value: bool
    ends: Ends = MappingProxyType({})


class EdgeSplit(NamedTuple):
    """A loop in parts: iterations without conditions on its variables, and those around them."""

    before: tuple[nodes.For, ...]
    middle: nodes.For
    after: tuple[nodes.For, ...]


def split_edges(loop: nodes.For, kinds: Mapping[str, Type]) -> EdgeSplit | None:
    """Split a loop into parts.

    Return None if no condition tells its ends from its middle, or if the parts would change the order of iterations
    that depend on each other. `kinds` are the types of locals.
    """
    # With anything else in it, the middle could not run in strips anyway (`_elementwise`).
    if not all(isinstance(one, nodes.Assign | nodes.Store | nodes.If) for one in walk.statements(loop.body)):
        return None
    # The ends of the last axis run before and after all rows of its middle, and no longer row by row. With one name
    # the order stays: first iterations, middle, last iterations.
    touched = walk.find_changed(loop.body)
    if len(loop.names) > 1 and not loop.is_parallel and not touched <= find_owned(loop):
        return None
    # A local from memory may be another number at its use than at its definition, if a store lies between.
    known = single_definitions(definitions(loop.body))
    known = {name: one for name, one in known.items() if one.type in (Type.I32, Type.U1) and not walk.reads_memory(one)}
    middle = _Middle(loop, known)
    body = eliminate_dead_code(middle.block(loop.body))
    if not any(middle.ends.values()):
        return None
    before: list[nodes.For] = []
    after: list[nodes.For] = []
    bounds = list(loop.bounds)
    is_parallel = loop.is_parallel and len(loop.names) > _MOST_SERIAL_NAMES
    for axis, name in enumerate(loop.names):
        begin, end = bounds[axis]
        # Clamped, so that no iteration runs twice in a loop that is shorter than its two ends.
        first, last = (middle.ends.get((name, is_last), 0) for is_last in (False, True))
        low = integer(Operator.MIN, shift_by(begin, first), end) if first else begin
        high = integer(Operator.MAX, low, shift_by(end, -last)) if last else end
        for parts, count, pair in ((before, first, (begin, low)), (after, last, (high, end))):
            if count:
                parts.append(replace(loop, bounds=(*bounds[:axis], pair, *bounds[axis + 1 :]), is_parallel=is_parallel))
        # The ends along the next axis do not contain those along this one.
        bounds[axis] = (low, high)
    # A local may have lost the start that declared it, where branches gave it a value before it was read.
    visible = frozenset(loop.names) | walk.find_mentioned([loop]) - walk.find_defined([loop])
    body = declare_locals(body, kinds, visible)
    return EdgeSplit(tuple(before), replace(loop, bounds=tuple(bounds), body=body), tuple(after))


class _Middle:
    """Writes statements of a loop as they are in its middle, and remembers the ends that it leaves out."""

    def __init__(self, loop: nodes.For, known: Mapping[str, nodes.Expr]) -> None:
        self.known = known
        self.bounds = {
            name: (affine(begin, known), affine(end, known).plus(AffineIndex(constant=-1)))
            for name, (begin, end) in zip(loop.names, loop.bounds, strict=True)
        }
        self.ends: Ends = {}

    def block(self, body: Sequence[nodes.Stmt]) -> nodes.Block:
        return tuple(part for one in body for part in self.statement(one))

    def statement(self, one: nodes.Stmt) -> Iterator[nodes.Stmt]:
        if isinstance(one, nodes.If):
            value = self.decide(one.condition)
            if value is not None:
                yield from self.block(one.body if value else one.orelse)
                return
        yield walk.with_bodies(walk.with_expressions(one, self.expression), self.block)

    def expression(self, expr: nodes.Expr) -> nodes.Expr:
        chosen = self.choose(expr)
        return walk.rebuild(expr, self.expression) if chosen is None else self.expression(chosen)

    def choose(self, expr: nodes.Expr) -> nodes.Expr | None:
        """Return the operand that an expression is equal to in the middle; None if that is not known."""
        match expr:
            case nodes.Select(condition, then, otherwise):
                value = self.decide(condition)
            case nodes.Binary(Operator.MAX | Operator.MIN as operator, then, otherwise, Type.I32):
                value = self.decide(compare(Operator.GE if operator == "max" else Operator.LE, then, otherwise))
            case nodes.Binary(Operator.MOD, left, right, Type.I32):
                is_inside = both(compare(Operator.GE, left, constant(0, Type.I32)), compare(Operator.LT, left, right))
                # First asked, then decided: ends that are left out for an answer that does not help would be in vain.
                answer = self.ask(is_inside)
                return left if answer is not None and answer.value and self.decide(is_inside) else None
            case _:
                return None
        return None if value is None else then if value else otherwise

    def decide(self, condition: nodes.Expr) -> bool | None:
        """Return the value of a condition in the middle, and leave out its ends; None if that is not known."""
        answer = self.ask(condition)
        if answer is None:
            return None
        self.ends = _widest(self.ends, answer.ends)
        return answer.value

    def ask(self, condition: nodes.Expr) -> _Answer | None:
        """Return the value of a condition in the middle, with its ends; None if the loop's variables do not tell."""
        match condition:
            case nodes.Const(value):
                return _Answer(bool(value))
            case nodes.Local(name, Type.U1) if name in self.known:
                return self.ask(self.known[name])
            case nodes.Unary(Operator.NOT, value):
                answer = self.ask(value)
                return None if answer is None else answer._replace(value=not answer.value)
            case nodes.Binary(Operator.AND | Operator.OR as operator, left, right):
                return self.join(self.ask(left), self.ask(right), decides=operator == "or")
            case nodes.Binary(operator, left, right) if (
                operator in operators.SWAPPED and left.type == right.type == Type.I32
            ):
                return self.compare(operator, affine(left, self.known).plus(affine(right, self.known), -1))
        return None

    def join(self, left: _Answer | None, right: _Answer | None, *, decides: bool) -> _Answer | None:
        """Return the answer to `left or right`, or `left and right`: a side that `decides` settles it alone."""
        for one in (left, right):
            if one is not None and one.value == decides:
                return one
        return None if left is None or right is None else _Answer(not decides, _widest(left.ends, right.ends))

    def compare(self, operator: Operator, difference: AffineIndex) -> _Answer | None:
        """Return how `difference` compares with 0, if it is a variable of the loop and a value near one of its ends."""
        names = [name for name in difference.terms if name in self.bounds]
        if len(names) != 1 or abs(difference.terms[names[0]]) != 1:
            return None
        (name,) = names
        sign = difference.terms[name]
        # `difference` is sign * (variable - place).
        place = AffineIndex({name: 1}).plus(difference, -sign)
        first, last = self.bounds[name]
        operator = operator if sign == 1 else operators.SWAPPED[operator]
        answers: list[tuple[int, _Answer]] = []
        # Iterations are counted from the first one on, or from the last one backwards, which swaps the comparison.
        for is_last, way, distance in (
            (False, operator, place.plus(first, -1).number),
            (True, operators.SWAPPED[operator], last.plus(place, -1).number),
        ):
            if distance is not None:
                # `i >= 3` is settled from iteration 3 on, and `i > 3`, `i == 3` from 4 on.
                count = max(distance if way in (">=", "<") else distance + 1, 0)
                answers.append((count, _Answer(way in (">=", ">", "!="), {(name, is_last): count})))
        count, answer = min(answers, key=lambda one: one[0], default=(_WIDEST + 1, None))
        return answer if count <= _WIDEST else None


def _widest(one: Ends, other: Ends) -> Ends:
    """Return the ends that leave out every iteration that `one` or `other` leaves out."""
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in (*one, *other)}
