"""Duals: an expression's value and tangent, with what both use computed once, in locals before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from ...source.ir import nodes, types, walk
from .._algebra import cast, constant, plus
from .._names import Names
from .._slopes import slopes
from ..analysis import Activity


class Dual(NamedTuple):
    """A value, and its tangent where it has one."""

    value: nodes.Expr
    tangent: nodes.Expr | None = None

    def get_tangent(self, kind: str) -> nodes.Expr:
        """The tangent as a type, 0 where there is none."""
        return constant(0, kind) if self.tangent is None else cast(self.tangent, kind)


@dataclass
class Expressions:
    """What expressions of one statement are about.

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
        """Value and tangent of all that the statement computes; what stands in it twice, in a local."""
        uses = Counter(part for part in walk.parts(expr) if not isinstance(part, nodes.Leaf))
        self._shared = {part for part, count in uses.items() if count > 1}
        return self.dual(expr)

    def dual(self, expr: nodes.Expr) -> Dual:
        """Value and tangent of an expression."""
        if not types.is_float(expr.type) or not self.activity.depends(expr):
            return Dual(expr)
        dual = self._known.get(expr)
        if dual is None:
            dual = self._known[expr] = self._bind_dual(self._dual(expr)) if expr in self._shared else self._dual(expr)
        return dual

    def _bind_dual(self, dual: Dual) -> Dual:
        return Dual(self.bind(dual.value), None if dual.tangent is None else self.bind(dual.tangent))

    def bind(self, expr: nodes.Expr) -> nodes.Expr:
        """An expression that costs nothing: itself, or a local that holds its value."""
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
        """First written with a placeholder for each part, to see which of them the tangent uses."""
        shell = _Shell(self)
        operation = walk.rebuild(expr, shell.operand)
        assert isinstance(operation, nodes.Unary | nodes.Binary | nodes.Cast)
        result = nodes.Local("result ", expr.type)
        moved = [slope.along(seed) for slope in slopes(operation, result) if (seed := shell.tangent(slope.operand))]
        if not moved:
            return Dual(expr)
        total = reduce(plus, moved)
        uses = Counter(part.name for part in walk.parts(total) if isinstance(part, nodes.Local))
        parts = shell.parts(uses)
        value = walk.substitute(operation, parts)
        if uses[result.name]:
            value = parts[result.name] = self.bind(value)
        return Dual(value, walk.substitute(total, parts))


class _Shell:
    """Placeholders for the operands of one operation, and for their tangents."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self._values: dict[str, nodes.Expr] = {}
        self._tangents: dict[str, nodes.Expr] = {}
        self._moved: dict[nodes.Expr, nodes.Expr] = {}

    def operand(self, expr: nodes.Expr) -> nodes.Expr:
        """What stands for an operand."""
        value, tangent = self.expressions.dual(expr)
        held = _hold_part(value, "value", self._values)
        if tangent is not None:
            self._moved[held] = _hold_part(tangent, "tangent", self._tangents)
        return held

    def tangent(self, operand: nodes.Expr) -> nodes.Expr | None:
        """What stands for the tangent of an operand; None if it has none."""
        return self._moved.get(operand)

    def parts(self, uses: Mapping[str, int]) -> dict[str, nodes.Expr]:
        """What placeholders stand for: locals where that is used more than once."""
        bound: Callable[[nodes.Expr], nodes.Expr] = self.expressions.bind
        values = {name: bound(expr) if uses[name] else expr for name, expr in self._values.items()}
        return values | {name: bound(expr) if uses[name] > 1 else expr for name, expr in self._tangents.items()}


def _hold_part(expr: nodes.Expr, wish: str, parts: dict[str, nodes.Expr]) -> nodes.Expr:
    """An expression, or what stands for it where it costs something."""
    if isinstance(expr, nodes.Leaf):
        return expr
    for known, part in parts.items():
        if part == expr:
            return nodes.Local(known, expr.type)
    name = f"{wish} {len(parts)}"  # no local of a kernel is called so
    parts[name] = expr
    return nodes.Local(name, expr.type)
