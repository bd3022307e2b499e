"""Statements with their tangents: the tangent first, since it uses the old values.

An expression has a dual, its value and its tangent; what both use is computed once, in locals before the statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

from ...analyses import Activity, slopes
from ...ir import AtomicOperator, Misfit, Names, NotCovered, Type, cast, constant, nodes, plus, times, types, walk
from .._decompositions import tangent_of


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


@dataclass(frozen=True)
class Statements:
    """Writes statements with their tangents.

    Attributes:
        path: the kernel's file.
        kinds: types of its arrays and locals.
        activity, companions, names: as of `Expressions`.
        owned: in a parallel loop, arrays whose elements one iteration alone touches; None in code that runs in order.
    """

    path: str
    kinds: Mapping[str, Type]
    activity: Activity
    companions: Mapping[str, str]
    names: Names
    owned: frozenset[str] | None = None

    def block(self, body: Sequence[nodes.Stmt]) -> nodes.Block:
        """Return statements in order, each with its tangent before it."""
        return tuple([new for old in body for new in self.statement(old)])

    def statement(self, one: nodes.Stmt) -> nodes.Block:
        """Return a statement with its tangent. Raises NotCovered, with the line."""
        match one:
            case nodes.Assign():
                return self._assign(one)
            case nodes.Draw():
                return (one, *self._still(one.name, one.type, one.line))
            case nodes.Decompose():
                return self._decompose(one)
            case nodes.Store():
                return self._store(one)
            case nodes.Atomic():
                return self._atomic(one)
            case nodes.Barrier() | nodes.Vote():
                raise AssertionError("unexpected barrier or vote; an earlier pass should have removed it")
            case _:
                return (walk.with_bodies(one, self.block),)

    def _still(self, name: str, kind: Type, line: int) -> nodes.Block:
        """Return the statement that clears a local's tangent, if it has one: its new value has none."""
        if name not in self.activity:
            return ()
        return (nodes.Assign(self.companions[name], constant(0, kind), line),)

    def _dual(self, expr: nodes.Expr, stem: str, line: int) -> tuple[Expressions, Dual]:
        expressions = Expressions(self.activity, self.companions, self.names, stem, line)
        try:
            return expressions, expressions.whole(expr)
        except Misfit as error:
            raise self._make_refusal(str(error), line) from error

    def _make_refusal(self, construct: str, line: int) -> NotCovered:
        return NotCovered(construct, line, self.path)

    # Locals -----------------------------------------------------------------------------------

    def _assign(self, one: nodes.Assign) -> nodes.Block:
        if one.name not in self.activity:
            return (one,)
        expressions, dual = self._dual(one.value, one.name, one.line)
        moved = dual.get_tangent(self.kinds[one.name])
        companion = nodes.Assign(self.companions[one.name], moved, one.line)
        return (*expressions.before, companion, replace(one, value=dual.value))

    def _decompose(self, one: nodes.Decompose) -> nodes.Block:
        """Return a decomposition and then its results' tangents, which are formulas in the results."""
        if not any(name in self.activity for name in one.results):
            return (one,)
        before: list[nodes.Stmt] = []
        values: list[nodes.Expr] = []
        moves: list[nodes.Expr] = []
        for entry in one.matrix:
            expressions, dual = self._dual(entry, "entry", one.line)
            # A copy: the matrix may be asked for again when the results have taken the place of its own locals.
            value = self.names.local("entry", entry.type)
            values.append(value)
            moves.append(expressions.bind(dual.get_tangent(one.type)))
            before += [*expressions.before, nodes.Assign(value.name, dual.value, one.line)]
        one = replace(one, matrix=tuple(values))
        steps, tangents = tangent_of(one, moves, self.names)
        given = zip(one.results, tangents, strict=True)
        moved = [nodes.Assign(self.companions[name], value, one.line) for name, value in given]
        return (*before, one, *steps, *moved)

    # Memory -----------------------------------------------------------------------------------

    def _store(self, one: nodes.Store) -> nodes.Block:
        if not self.activity.has_array(one.array):
            return (one,)
        expressions, dual = self._dual(one.value, one.array, one.line)
        one = replace(one, value=dual.value)
        companion = replace(one, array=self.companions[one.array], value=dual.get_tangent(self.kinds[one.array]))
        return (*expressions.before, companion, one)

    def _atomic(self, one: nodes.Atomic) -> nodes.Block:
        if not self.activity.has_array(one.array):
            return (one, *self._still(one.result or "", self.kinds[one.array], one.line))
        self._check_order(one)
        expressions, dual = self._dual(one.value, one.array, one.line)
        if one.operator in (AtomicOperator.ADD, AtomicOperator.SUB):
            changes, one = self._sum(one, dual)
        else:
            assert one.operator == AtomicOperator.MUL, f"unexpected {one}; an earlier pass should have rewritten it"
            changes, one = self._product(one, expressions, dual)
        return (*expressions.before, *self._result(one), *changes, one)

    def _is_alone(self, array: str) -> bool:
        """Return True if no other iteration touches an element that this one touches."""
        return self.owned is None or array in self.owned

    def _check_order(self, one: nodes.Atomic) -> None:
        if one.operator == AtomicOperator.MUL and not self._is_alone(one.array):
            raise self._make_refusal(
                "the tangent of `atomic_mul` on an element that several iterations change", one.line
            )

    def _result(self, one: nodes.Atomic) -> nodes.Block:
        """Return the statement that loads the old value's tangent, before the atomic changes it."""
        if one.result is None or one.result not in self.activity:
            return ()
        old = nodes.Load(self.companions[one.array], one.index, one.entry, self.kinds[one.array])
        return (nodes.Assign(self.companions[one.result], old, one.line),)

    def _sum(self, one: nodes.Atomic, dual: Dual) -> tuple[nodes.Block, nodes.Atomic]:
        one = replace(one, value=dual.value)
        if dual.tangent is None:
            return (), one
        value = cast(dual.tangent, self.kinds[one.array])
        companion = replace(one, array=self.companions[one.array], value=value, result=None)
        return (companion,), one

    def _product(self, one: nodes.Atomic, expressions: Expressions, dual: Dual) -> tuple[nodes.Block, nodes.Atomic]:
        kind = self.kinds[one.array]
        # The factor is used twice, by the tangent and by the atomic. The tangent comes first: it reads the old element.
        value = expressions.bind(cast(dual.value, kind))
        one = replace(one, value=value)
        companion = self.companions[one.array]
        old, moved = (nodes.Load(name, one.index, one.entry, kind) for name in (one.array, companion))
        total = plus(times(moved, value), times(old, dual.get_tangent(kind)))
        return (nodes.Store(companion, one.index, one.entry, total, one.line),), one
