"""Accesses of a parallel loop: what an iteration loads and changes, where, and under which conditions.

Indices and conditions are in terms of the loops' variables, sizes, arguments, and elements of arrays that the loop does
not change. What cannot be expressed so is an opaque local that says where it comes from (`Origin`). `_access_walk`
finds the accesses.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .._cache import cache_results
from .._lazy import lazy
from ..ir import Operator, Type, nodes, types, walk

OPAQUE = "?"
"""Begins the names of opaque locals, followed by their origin and a number."""
MOST_SELECTS = 2
"""Choices in an index that are followed one by one; where there are more, none is."""
MOST_REMEMBERED = 4096
"""Expressions whose origins are remembered: values of locals share most of their parts."""
COMPUTED_OF_FLOATS = frozenset({"+", "-", "*", "/", "neg", "abs", "min", "max", "sqrt", "floor", "ceil"})
"""Operations on floats whose numbers are those of any IEEE arithmetic."""


class Origin(enum.Enum):
    """Where an opaque number comes from: memory, floats or random numbers; an atomic counter; or anything else."""

    DATA = "data"
    COUNTER = "counter"
    UNKNOWN = "unknown"


_SLOT = f"{OPAQUE}{Origin.COUNTER.value}:"


class Condition(NamedTuple):
    """An iteration reaches an access only if an expression is true (or false: `holds`).

    One that `is_bound` bounds a loop's variable, on the left. Of one that is opaque, `enough` may say when it holds: in
    the first iteration of a loop that breaks, nothing has left it.
    """

    expr: nodes.Expr
    holds: bool
    is_bound: bool = False
    enough: nodes.Expr | None = None


@dataclass(frozen=True)
class LoopAccess:
    """A load, store or atomic of an iteration.

    Attributes:
        of: the node; its index and value are in terms of the kernel's locals.
        line: its line.
        index: its index, in terms of variables of loops, sizes, arguments and opaque locals.
        value: what a store stores, in the same terms; None for others.
        conditions: what holds where it is reached, bounds of loops included.
    """

    of: nodes.Load | nodes.Store | nodes.Atomic
    line: int
    index: tuple[nodes.Expr, ...]
    value: nodes.Expr | None
    conditions: tuple[Condition, ...]

    @property
    def array(self) -> str:
        return self.of.array

    @property
    def entry(self) -> tuple[int, ...]:
        return self.of.entry

    @property
    def is_change(self) -> bool:
        """True if the access is a store or an atomic."""
        return not isinstance(self.of, nodes.Load)

    @property
    def is_load(self) -> bool:
        """True if the access is a load."""
        return isinstance(self.of, nodes.Load)

    @lazy
    def key(self) -> object:
        """Return the kind, index, value and conditions. Of accesses with equal keys, only one need be compared with
        others.
        """
        kind = self.of.operator if isinstance(self.of, nodes.Atomic) else type(self.of).__name__
        return kind, self.entry, self.index, self.value, self.conditions

    @lazy
    def symbols(self) -> tuple[nodes.Expr, ...]:
        """Return the sizes and arguments that the index and the conditions depend on."""
        parts = walk.parts(*self.index, *(one.expr for one in self.conditions))
        return tuple(dict.fromkeys(one for one in parts if isinstance(one, nodes.Size | nodes.Argument)))

    @lazy
    def index_origins(self) -> frozenset[Origin]:
        """Return the origins (data, arguments, ...) of the parts of the index whose values are not known.

        The position in a segment from one offset to the next, `range(start[i], start[i + 1])`, is not counted as data:
        such segments are disjoint by construction.
        """
        return frozenset(origin for part in self.index for origin in self._axis_origins(part))

    def _axis_origins(self, part: nodes.Expr) -> frozenset[Origin]:
        origins = find_origins([part])
        if any(one in self._segment_variables for one in walk.parts(part)):
            return (origins - {Origin.DATA}) | {Origin.UNKNOWN}
        return origins

    @lazy
    def _segment_variables(self) -> frozenset[nodes.Expr]:
        """Return the variables of loops that run from one offset to the next, `range(start[i], start[i + 1])`."""
        bounds: dict[nodes.Expr, list[nodes.Expr]] = {}
        for one in self.conditions:
            if one.is_bound and isinstance(one.expr, nodes.Binary):
                bounds.setdefault(one.expr.left, []).append(one.expr.right)
        return frozenset(name for name, ends in bounds.items() if len(ends) == 2 and _are_offsets(*ends))

    @lazy
    def condition_origins(self) -> frozenset[Origin]:
        """Return the origins (data, arguments, ...) of the parts of the conditions whose values are not known."""
        return find_origins([one.expr for one in self.conditions])

    @lazy
    def surest(self) -> LoopAccess:
        """Return this access with each condition whose value is unknown replaced by its sufficient condition,
        `enough`.
        """
        known = [one if one.enough is None else Condition(one.enough, True) for one in self.conditions]
        return replace(self, conditions=tuple(known))

    @lazy
    def cases(self) -> tuple[LoopAccess, ...]:
        """Split an access whose index contains selects into one access for each selected index.

        Each gets the select's condition, or the opposite, among its conditions.
        """
        selects = dict.fromkeys(one for one in walk.parts(*self.index) if isinstance(one, nodes.Select))
        if not 0 < len(selects) <= MOST_SELECTS:
            return (self,)
        chosen = next(iter(selects))

        def choose(expr: nodes.Expr, arm: nodes.Expr) -> nodes.Expr:
            return arm if expr == chosen else walk.rebuild(expr, lambda part: choose(part, arm))

        cases = [
            replace(
                self,
                index=tuple([choose(one, arm) for one in self.index]),
                conditions=(*self.conditions, Condition(chosen.condition, holds)),
            )
            for arm, holds in ((chosen.then, True), (chosen.otherwise, False))
        ]
        return tuple(inner for one in cases for inner in one.cases)

    @property
    def is_exact(self) -> bool:
        """Whether variables of loops, sizes and arguments alone decide whether and where the access happens."""
        return not (self.index_origins or self.condition_origins)


def find_origins(exprs: Sequence[nodes.Expr]) -> frozenset[Origin]:
    """Return where the opaque parts of expressions come from."""
    return frozenset[Origin]().union(*map(_origins_in, exprs))


@cache_results("origins of indices", MOST_REMEMBERED)
def _origins_in(expr: nodes.Expr) -> frozenset[Origin]:
    inner = find_origins(walk.operands(expr))
    match expr:
        case nodes.Local(name) if name.startswith(OPAQUE):
            return frozenset((Origin(name[1:].partition(":")[0]),))
        case nodes.Load() | nodes.Cast(keeps_bits=True):
            return inner | {Origin.DATA}
        # Functions such as `sin` differ in their last digits from engine to engine, so a number computed here may not
        # be the one of the run.
        case nodes.Unary(word, type=kind) | nodes.Binary(word, type=kind) if types.is_float(kind):
            return inner if word in COMPUTED_OF_FLOATS else inner | {Origin.UNKNOWN}
        case nodes.Argument(_, kind) if types.is_float(kind):
            return frozenset((Origin.DATA,))
    return inner


def _are_offsets(first: nodes.Expr, end: nodes.Expr) -> bool:
    """Return True if two bounds are neighbors in an array: `start[i]` and `start[i + 1]`."""
    if not (isinstance(first, nodes.Load) and isinstance(end, nodes.Load)) or first.array != end.array:
        return False
    *rows, last = zip(first.index, end.index, strict=True)
    # `start[b, i]` and `start[b, i + 1]`: only the last axis goes on by one.
    is_one_row = all(one == two for one, two in rows) and first.entry == end.entry
    return is_one_row and last[1] == nodes.Binary(Operator.ADD, last[0], nodes.Const(1, last[0].type), last[0].type)


def is_computable(expr: nodes.Expr) -> bool:
    """Return True if numbers of variables of loops, sizes and arguments give that of an expression."""
    return not _origins_in(expr)


def opaque(origin: Origin, kind: Type, number: int) -> nodes.Local:
    """Return an expression that stands for an unknown value with a known origin; it differs for each `number`."""
    return nodes.Local(f"{OPAQUE}{origin.value}:{number}", kind)


def step_of(part: nodes.Expr) -> int:
    """Return the step of the counter that handed out a number; 0 for other expressions."""
    if isinstance(part, nodes.Local) and part.name.startswith(_SLOT):
        return int(part.name.rpartition(":")[2])
    return 0
