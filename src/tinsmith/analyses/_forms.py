"""Affine forms of integer expressions in one of two iterations that are compared.

A form is a sum of atoms: variables of loops and opaque numbers, each iteration having its own, and sizes and
arguments, which both share. Quotients by constants are atoms with an inequality on each side; remainders follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .. import analyses
from ..ir import AffineIndex, Operator, combine, integer, nodes, number, operators, types, walk
from ._accesses import Condition, LoopAccess

if TYPE_CHECKING:
    from ._integer_systems import Variable


MOST_ALTERNATIVES = 8
"""Cases of conditions with `or` and `!=` that are looked at; beyond, the condition is left out."""
_SHIFTS = {
    # Not the unsigned shift, which makes large numbers of negative ones.
    Operator.SHIFT_RIGHT: Operator.FLOOR_DIV,
    Operator.SHIFT_LEFT: Operator.MUL,
}


_Cases: TypeAlias = "list[tuple[analyses.Constraint, ...]]"
"""Sets of constraints; one of them holds."""


def is_private(expr: nodes.Expr) -> bool:
    """Return True if an expression may have another value in another iteration."""
    return any(isinstance(one, nodes.Local) for one in walk.parts(expr))


@dataclass(frozen=True, eq=False)
class Atom:
    """The number of an expression: of one iteration (`is_private`), or the same in both."""

    expr: nodes.Expr
    is_private: bool


class IterationForms:
    """Forms of expressions in one iteration.

    Attributes:
        facts: what holds of the atoms so far.
    """

    def __init__(self, known: Mapping[nodes.Expr, int], shared: dict[nodes.Expr, Atom]) -> None:
        """Begin without forms.

        Args:
            known: numbers of sizes and arguments.
            shared: atoms of expressions that have one value in all iterations; added to.
        """
        self._known = known
        self._shared = shared
        self._own: dict[nodes.Expr, Atom] = {}
        self._forms: dict[nodes.Expr, AffineIndex | None] = {}
        self.facts: list[analyses.Constraint] = []

    def atom(self, expr: nodes.Expr) -> Atom:
        """Return the atom that stands for an expression: of this iteration, unless both share it."""
        known = self._own.get(expr) or self._shared.get(expr)
        if known is None:
            known = Atom(expr, is_private(expr))
            (self._own if known.is_private else self._shared)[expr] = known
        return known

    def form(self, expr: nodes.Expr) -> AffineIndex | None:
        """Return an integer expression as a form; None if it is not of integers."""
        if types.is_float(expr.type):
            return None
        if expr not in self._forms:
            self._forms[expr] = self._form(expr)
        return self._forms[expr]

    def _form(self, expr: nodes.Expr) -> AffineIndex | None:
        match expr:
            case nodes.Const(value):
                return AffineIndex(constant=int(value))
            case nodes.Size() | nodes.Argument() if expr in self._known:
                return AffineIndex(constant=self._known[expr])
            case nodes.Size():
                self.facts.append(analyses.Constraint(AffineIndex({self.atom(expr): 1})))
            case nodes.Cast(value, keeps_bits=False) if not types.is_float(value.type):
                return self.form(value)
            case nodes.Unary(Operator.NEG, value):
                inner = self.form(value)
                return None if inner is None else inner.times(-1)
            # `i & 7` is `i % 8`, of negative numbers too: they are in two's complement.
            case nodes.Binary(Operator.BIT_AND, left, nodes.Const(int() as mask)) if (
                mask > 0 and mask & (mask + 1) == 0
            ):
                return self._remainder(left, mask + 1)
            case nodes.Binary(
                (Operator.SHIFT_LEFT | Operator.SHIFT_RIGHT) as word, left, nodes.Const(int() as shift)
            ) if 0 <= shift < 31:
                other = nodes.Const(1 << shift, left.type)
                return self.form(nodes.Binary(_SHIFTS[word], left, other, expr.type))
            case nodes.Binary(word, left, right):
                return self._binary(word, left, right, expr)
        return AffineIndex({self.atom(expr): 1})

    def _binary(self, word: str, left: nodes.Expr, right: nodes.Expr, expr: nodes.Expr) -> AffineIndex | None:
        one, two = self.form(left), self.form(right)
        whole = AffineIndex({self.atom(expr): 1})
        if one is None or two is None:
            return whole
        combined = combine(word, one, two)
        if combined is not None:
            return combined
        if word in ("//", "%") and two.number is not None and two.number > 0:
            return self._quotient(one, two.number, left) if word == "//" else self._remainder(left, two.number)
        # The result is an atom: a maximum is at least as large as each side. That it equals one of them is not said.
        if word in ("min", "max"):
            sign = 1 if word == "max" else -1
            self.facts += [analyses.Constraint(whole.plus(side, -1).times(sign)) for side in (one, two)]
        # A truth that is counted with is 0 or 1.
        if word in _COMPARISONS:
            self.facts += [
                analyses.Constraint(whole),
                analyses.Constraint(whole.times(-1).plus(AffineIndex(constant=1))),
            ]
        return whole

    def _quotient(self, form: AffineIndex, divisor: int, left: nodes.Expr) -> AffineIndex:
        """Return `form // divisor`, rounded down."""
        if not form.terms:
            return AffineIndex(constant=form.constant // divisor)
        # `n // 2` is one atom wherever it stands, so that the halves of an array have one length.
        quotient = AffineIndex({self.atom(integer(Operator.FLOOR_DIV, left, number(divisor))): 1})
        # What a division rounded down means: `0 <= form - divisor * quotient < divisor`.
        rest = form.plus(quotient, -divisor)
        self.facts.append(analyses.Constraint(rest))
        self.facts.append(analyses.Constraint(rest.times(-1).plus(AffineIndex(constant=divisor - 1))))
        return quotient

    def _remainder(self, left: nodes.Expr, divisor: int) -> AffineIndex | None:
        form = self.form(left)
        quotient = self.form(integer(Operator.FLOOR_DIV, left, number(divisor)))
        return None if form is None or quotient is None else form.plus(quotient, -divisor)

    def evaluate(self, expr: nodes.Expr, solutions: Mapping[Variable, analyses.Numbers]) -> analyses.Result | None:
        """Evaluate an expression for many solutions at once; return None if it cannot be computed.

        `solutions` are arrays of values, by variable.
        """

        def value(leaf: nodes.Expr) -> analyses.Numbers | None:
            known = self._known.get(leaf)
            return solutions.get(self.atom(leaf)) if known is None else np.array([known])

        return analyses.evaluate(expr, value)

    def confirms(self, access: LoopAccess, solutions: Mapping[Variable, analyses.Numbers]) -> np.ndarray:
        """Return which solutions break no condition of an access, computed again without forms."""
        holds = np.array([True])
        for one in access.conditions:
            result = self.evaluate(one.expr, solutions)
            if result is not None:
                holds = holds & result.is_defined & ((result.numbers != 0) == one.holds)
        return holds

    # Conditions -------------------------------------------------------------------------------

    def alternatives(self, conditions: Sequence[Condition]) -> _Cases:
        """Return cases, one of which holds wherever all conditions on integers hold. Others are left out."""
        cases: _Cases = [()]
        for one in conditions:
            more = self._cases(one.expr, holds=one.holds)
            if more is None:
                continue
            both = [(*case, *added) for case in cases for added in more]
            if len(more) > 1:
                both = [case for case in both if not analyses.has_no_solution([*case, *self.facts])]
            # Without a condition there are more solutions: what is proven without it holds with it.
            if len(both) <= MOST_ALTERNATIVES:
                cases = both
        return cases

    def _cases(self, expr: nodes.Expr, *, holds: bool) -> _Cases | None:
        """Return cases, one of which holds wherever a condition holds; None if nothing is known about it."""
        match expr:
            case nodes.Const(value):
                return [()] if bool(value) == holds else []
            case nodes.Unary(Operator.NOT, value):
                return self._cases(value, holds=not holds)
            case nodes.Cast(value, keeps_bits=False) if not types.is_float(value.type):
                return self._cases(value, holds=holds)
            case nodes.Binary(Operator.AND | Operator.OR as word, left, right):
                one, two = self._cases(left, holds=holds), self._cases(right, holds=holds)
                # De Morgan: where `a or b` does not hold, neither does.
                return _both(one, two) if (word == "and") == holds else _either(one, two)
            case nodes.Binary(word, nodes.Select() as chosen, right) if word in operators.OPPOSITE:
                return self._choose(chosen, lambda one: replace(expr, left=one), holds=holds)
            case nodes.Binary(word, left, nodes.Select() as chosen) if word in operators.OPPOSITE:
                return self._choose(chosen, lambda one: replace(expr, right=one), holds=holds)
            case nodes.Binary(word, left, right) if word in operators.OPPOSITE:
                one, two = self.form(left), self.form(right)
                if one is None or two is None:
                    return None
                return [*_compare(word if holds else operators.OPPOSITE[word], one.plus(two, -1))]
        if not holds and types.is_float(expr.type):
            return None
        form = self.form(expr)
        if form is None:
            return None
        return [*_compare("!=" if holds else "==", form)]

    def _choose(
        self, chosen: nodes.Select, compare: Callable[[nodes.Expr], nodes.Expr], *, holds: bool
    ) -> _Cases | None:
        """Return the cases in which a comparison of a `select` holds (or fails: `holds`), branch by branch."""
        arms = ((chosen.then, True), (chosen.otherwise, False))
        cases = [
            _both(self._cases(chosen.condition, holds=is_first), self._cases(compare(arm), holds=holds))
            for arm, is_first in arms
        ]
        return _either(*cases)


def _both(one: _Cases | None, two: _Cases | None) -> _Cases | None:
    """Return the cases in which both of two conditions hold."""
    if one is None or two is None:
        # An unknown condition is left out.
        return two if one is None else one
    return [(*first, *second) for first in one for second in two]


def _either(one: _Cases | None, two: _Cases | None) -> _Cases | None:
    """Return the cases in which at least one of two conditions holds."""
    # Where the unknown one holds, nothing is known of the other.
    return None if one is None or two is None else [*one, *two]


_COMPARISONS = frozenset({*operators.OPPOSITE, "and", "or"})


def _compare(word: str, gap: AffineIndex) -> Iterator[tuple[analyses.Constraint, ...]]:
    """Yield the cases in which `gap word 0` holds for a comparison `word`."""
    less = AffineIndex(constant=-1)
    match word:
        case "==":
            yield (analyses.Constraint(gap, is_equation=True),)
        case "!=":
            yield (analyses.Constraint(gap.plus(less)),)
            yield (analyses.Constraint(gap.times(-1).plus(less)),)
        case ">=":
            yield (analyses.Constraint(gap),)
        case ">":
            yield (analyses.Constraint(gap.plus(less)),)
        case "<=":
            yield (analyses.Constraint(gap.times(-1)),)
        case "<":
            yield (analyses.Constraint(gap.times(-1).plus(less)),)
