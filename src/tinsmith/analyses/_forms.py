"""Affine forms of integer expressions in one of two iterations that are compared.

A form is a sum of atoms: variables of loops and opaque numbers, each iteration having its own, and sizes and
arguments, which both share. Quotients by constants are atoms with an inequality on each side; remainders follow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..source import AffineIndex, combine
from ..source.ir import nodes, operators, types, walk
from ._accesses import Condition, LoopAccess, origin_of
from ._integer_systems import Constraint, Variable

MOST_ALTERNATIVES = 8
"""Cases of conditions with `or` and `!=` that are looked at; beyond, the condition is left out."""
_WHOLE = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "u1")
_SHIFTS = {">>": "//", ">>>": "//", "<<": "*"}


def is_private(expr: nodes.Expr) -> bool:
    """Return True if an expression may have another value in another iteration."""
    return any(isinstance(one, nodes.Local) for one in walk.parts(expr))


class IterationForms:
    """Forms of expressions in one iteration.

    Attributes:
        facts: what holds of the atoms so far.
    """

    def __init__(self, number: int, known: Mapping[nodes.Expr, int]) -> None:
        self._number = number
        self._known = known
        self._forms: dict[nodes.Expr, AffineIndex | None] = {}
        self.facts: list[Constraint] = []

    def atom(self, expr: nodes.Expr) -> Variable:
        """Return the atom that stands for an expression: of this iteration, unless both share it."""
        return (expr, self._number) if is_private(expr) else expr

    def form(self, expr: nodes.Expr) -> AffineIndex | None:
        """Return an integer expression as a form; None if it is not of integers."""
        if expr.type not in _WHOLE:
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
                self.facts.append(Constraint(AffineIndex({expr: 1})))
            case nodes.Cast(value, keeps_bits=False) if value.type in _WHOLE:
                return self.form(value)
            case nodes.Unary("neg", value):
                inner = self.form(value)
                return None if inner is None else inner.times(-1)
            case nodes.Binary("&", left, nodes.Const(int() as mask)) if mask > 0 and mask & (mask + 1) == 0:
                return self._remainder(left, mask + 1)
            case nodes.Binary(("<<" | ">>" | ">>>") as word, left, nodes.Const(int() as shift)) if 0 <= shift < 31:
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
        if word in ("min", "max"):
            sign = 1 if word == "max" else -1
            self.facts += [Constraint(whole.plus(side, -1).times(sign)) for side in (one, two)]
        if word in _COMPARISONS:
            self.facts += [Constraint(whole), Constraint(whole.times(-1).plus(AffineIndex(constant=1)))]
        return whole

    def _quotient(self, form: AffineIndex, divisor: int, left: nodes.Expr) -> AffineIndex:
        """Return `form // divisor`, rounded down."""
        if not form.terms:
            return AffineIndex(constant=form.constant // divisor)
        # `n // 2` is one atom wherever it stands, so that the halves of an array have one length.
        quotient = AffineIndex({self.atom(nodes.Binary("//", left, nodes.Const(divisor, "i32"), "i32")): 1})
        rest = form.plus(quotient, -divisor)
        self.facts.append(Constraint(rest))
        self.facts.append(Constraint(rest.times(-1).plus(AffineIndex(constant=divisor - 1))))
        return quotient

    def _remainder(self, left: nodes.Expr, divisor: int) -> AffineIndex | None:
        form = self.form(left)
        quotient = self.form(nodes.Binary("//", left, nodes.Const(divisor, "i32"), "i32"))
        return None if form is None or quotient is None else form.plus(quotient, -divisor)

    # Numbers ----------------------------------------------------------------------------------

    def confirms(self, access: LoopAccess, solution: Mapping[Variable, int]) -> bool:
        """Return False if a solution breaks a condition of an access, computed again without forms."""
        for one in access.conditions:
            number = self.evaluate(one.expr, solution)
            if number is not None and bool(number) != one.holds:
                return False
        return True

    def evaluate(self, expr: nodes.Expr, solution: Mapping[Variable, int]) -> int | None:
        """Return the number of an expression of integers for a solution; None if parts of it are opaque."""
        if any(origin_of(one) is not None or one.type not in _WHOLE for one in walk.parts(expr)):
            return None
        match expr:
            case nodes.Const(value):
                return int(value)
            case nodes.Local():
                return solution.get((expr, self._number))
            case nodes.Size() | nodes.Argument():
                return self._known.get(expr, solution.get(expr))
        numbers = [self.evaluate(one, solution) for one in walk.operands(expr)]
        if any(one is None for one in numbers):
            return None
        return _compute(expr, *numbers)

    # Conditions -------------------------------------------------------------------------------

    def alternatives(self, conditions: Sequence[Condition]) -> list[tuple[Constraint, ...]]:
        """Return cases of which one holds wherever conditions hold. What is no condition of integers is left out."""
        cases: list[tuple[Constraint, ...]] = [()]
        for one in conditions:
            more = self._cases(one.expr, holds=one.holds)
            if more is not None and len(cases) * len(more) <= MOST_ALTERNATIVES:
                cases = [(*case, *added) for case in cases for added in more]
        return cases

    def _cases(self, expr: nodes.Expr, *, holds: bool) -> list[tuple[Constraint, ...]] | None:
        """Return cases of which one holds where a condition does; None where nothing is known."""
        match expr:
            case nodes.Const(value):
                return [()] if bool(value) == holds else []
            case nodes.Unary("not", value):
                return self._cases(value, holds=not holds)
            case nodes.Cast(value, keeps_bits=False) if value.type in _WHOLE:
                return self._cases(value, holds=holds)
            case nodes.Binary("and" | "or" as word, left, right):
                one, two = self._cases(left, holds=holds), self._cases(right, holds=holds)
                if (word == "and") == holds:
                    if one is None or two is None:
                        return two if one is None else one
                    return [(*first, *second) for first in one for second in two]
                return None if one is None or two is None else [*one, *two]
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


def _compute(expr: nodes.Expr, *operands: Any) -> int | None:
    """Return the number of an operation; None for operations on floats, and divisions by zero."""
    match expr:
        case nodes.Cast():
            return operands[0]
        case nodes.Select():
            return operands[1] if operands[0] else operands[2]
        case nodes.Unary(word) if word in _UNARY:
            return _UNARY[word](*operands)
        case nodes.Binary("//" | "%" | "raw_div" | "raw_mod") if not operands[1]:
            return None
        case nodes.Binary("<<" | ">>" | ">>>") if not 0 <= operands[1] < 64:
            return None
        case nodes.Binary(word) if word in _BINARY:
            return int(_BINARY[word](*operands))
    return None


_UNARY: Mapping[str, Callable[[int], int]] = {"neg": int.__neg__, "~": int.__invert__, "abs": abs, "not": operator.not_}
_BINARY: Mapping[str, Callable[[int, int], int | bool]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "min": min,
    "max": max,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": lambda left, right: bool(left) and bool(right),
    "or": lambda left, right: bool(left) or bool(right),
}
_COMPARISONS = frozenset({*operators.OPPOSITE, "and", "or"})


def _compare(word: str, gap: AffineIndex) -> Iterator[tuple[Constraint, ...]]:
    """Yield the cases in which `gap word 0` holds for a comparison `word`."""
    less = AffineIndex(constant=-1)
    match word:
        case "==":
            yield (Constraint(gap, is_equation=True),)
        case "!=":
            yield (Constraint(gap.plus(less)),)
            yield (Constraint(gap.times(-1).plus(less)),)
        case ">=":
            yield (Constraint(gap),)
        case ">":
            yield (Constraint(gap.plus(less)),)
        case "<=":
            yield (Constraint(gap.times(-1)),)
        case "<":
            yield (Constraint(gap.times(-1).plus(less)),)
