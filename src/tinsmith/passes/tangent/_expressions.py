"""Duals: an expression's value and tangent, with what both use computed once, in locals before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

from ...analyses import Activity, slopes
from ...ir import Names, Type, cast, constant, nodes, plus, types, walk


class Dual(NamedTuple):
    """A value, and its tangent where it has one."""

    value: nodes.Expr
    tangent: nodes.Expr | None = None

    def get_tangent(self, kind: Type) -> nodes.Expr:
        """Return the tangent cast to a type, 0 if there is none."""
        return constant(0, kind) if self.tangent is None else cast(self.tangent, kind)


@dataclass
class Expressions:
    """Computes values and tangents of the expressions of one statement.

    Attributes:
        activity: what has a tangent.
        companions: names of the tangents of locals, and of arrays and arguments.
        names: gives names to locals.
        stem: what those are named after.
        line: of the statement.
        before: statements that compute locals, to be run before it.
    """

    activity: Activity
    companions: Mapping[str, str]
    names: Names
    stem: str
    line: int
    before: list[nodes.Stmt] = field(default_factory=list)
    _shared: set[nodes.Expr] = field(default_factory=set)
    _known: dict[nodes.Expr, Dual] = field(default_factory=dict)
    _bound: dict[nodes.Expr, nodes.Local] = field(default_factory=dict)

    def whole(self, expr: nodes.Expr) -> Dual:
        """Return the value and tangent of all that the statement computes; what stands in it twice is in a local."""
        uses = Counter(part for part in walk.parts(expr) if not isinstance(part, nodes.Leaf))
        self._shared = {part for part, count in uses.items() if count > 1}
        return self.dual(expr)

    def dual(self, expr: nodes.Expr) -> Dual:
        """Return the value and tangent of an expression."""
        if not types.is_float(expr.type) or not self.activity.depends(expr):
            return Dual(expr)
        dual = self._known.get(expr)
        if dual is None:
            dual = self._known[expr] = self._bind_dual(self._dual(expr)) if expr in self._shared else self._dual(expr)
        return dual

    def _bind_dual(self, dual: Dual) -> Dual:
        return Dual(self.bind(dual.value), None if dual.tangent is None else self.bind(dual.tangent))

    def bind(self, expr: nodes.Expr) -> nodes.Expr:
        """Return an expression that costs nothing: itself if it is a leaf, else a local that holds its value."""
        if isinstance(expr, nodes.Leaf):
            return expr
        local = self._bound.get(expr)
        if local is None:
            local = self._bound[expr] = self.names.local(self.stem, expr.type)
            self.before.append(nodes.Assign(local.name, expr, self.line))
        return local

    def _dual(self, expr: nodes.Expr) -> Dual:
        match expr:
            case nodes.Local(name, kind):
                return Dual(expr, nodes.Local(self.companions[name], kind))
            case nodes.Argument(name, kind, entry):
                return Dual(expr, nodes.Argument(self.companions[name], kind, entry))
            case nodes.Load(array, index, entry, kind):
                return Dual(expr, nodes.Load(self.companions[array], index, entry, kind))
            case nodes.Select():
                return self._choice(expr)
            case nodes.Unary() | nodes.Binary() | nodes.Cast():
                return self._operation(expr)
            case _:
                return Dual(expr)

    def _choice(self, expr: nodes.Select) -> Dual:
        condition, kind = self.bind(expr.condition), expr.type
        then, otherwise = self.dual(expr.then), self.dual(expr.otherwise)
        values = cast(then.value, kind), cast(otherwise.value, kind)
        tangents = then.get_tangent(kind), otherwise.get_tangent(kind)
        return Dual(nodes.Select(condition, *values, kind), nodes.Select(condition, *tangents, kind))

    def _operation(self, expr: nodes.Unary | nodes.Binary | nodes.Cast) -> Dual:
        """Differentiate an operation twice: a draft with all operands in place shows which the tangent uses.

        These get locals, which value and tangent then share.
        """
        duals = [self.dual(one) for one in walk.operands(expr)]
        draft = _differentiate(expr, duals)[1]
        if draft is None:
            return Dual(expr)
        # Not a `Counter`: to compare nodes is faster than to hash them, with all that is inside them.
        used, result = [*walk.parts(draft)], replace(_RESULT, type=expr.type)
        values = [self.bind(one.value) if one.value in used else one.value for one in duals]
        moves = [one.tangent for one in duals]
        tangents = [self.bind(one) if one is not None and used.count(one) > 1 else one for one in moves]
        value, total = _differentiate(expr, list(map(Dual, values, tangents)))
        if total is not None and result in used:
            value = self.bind(value)
            total = walk.substitute(total, {_RESULT.name: value})
        return Dual(value, total)


_RESULT = nodes.Local("result ", Type.F32)
"""What an operation gives, in its own derivative: no local of a kernel is called so."""


def _differentiate(
    expr: nodes.Unary | nodes.Binary | nodes.Cast, operands: Sequence[Dual]
) -> tuple[nodes.Expr, nodes.Expr | None]:
    """Return an operation on other operands, and its tangent in terms of them and of `_RESULT`; None if it has none."""
    given = iter(operands)
    operation = walk.rebuild(expr, lambda _: next(given).value)
    assert isinstance(operation, nodes.Unary | nodes.Binary | nodes.Cast)
    tangents = {one.value: one.tangent for one in operands if one.tangent is not None}
    every = slopes(operation, replace(_RESULT, type=expr.type))
    moved = [slope.along(tangents[slope.operand]) for slope in every if slope.operand in tangents]
    return operation, reduce(plus, moved) if moved else None
