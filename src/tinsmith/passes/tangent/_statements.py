"""Statements with their tangents: the tangent first, since it uses the old values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...analyses import Activity
from ...ir import AtomicOperator, Misfit, Names, NotCovered, Type, cast, constant, nodes, plus, times, walk
from .._decompositions import tangent_of
from ._expressions import Dual, Expressions


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
