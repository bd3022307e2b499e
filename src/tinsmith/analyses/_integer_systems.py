"""Integer systems: whether affine equations and inequalities have a common solution in whole numbers.

Fourier-Motzkin elimination with the bounds of whole numbers (Pugh, "The Omega test", 1991, without its last step):
an equation whose coefficients have a common divisor that its constant has not is unsolvable, an inequality is divided
by the common divisor of its coefficients and rounded inwards, and a variable is eliminated by combining each of its
lower bounds with each of its upper bounds. An empty result is a proof. A solution is found by going back through
the eliminated variables, and is a proof of the contrary.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ..ir import AffineIndex

Variable: TypeAlias = Hashable

MOST_ROWS = 300
"""Inequalities beyond which nothing is proven: elimination may square their number for each variable."""
MOST_TRIES = 400
"""Values that the search for a solution tries."""


class Constraint(NamedTuple):
    """`form >= 0`, or `form == 0` where it `is_equation`."""

    form: AffineIndex
    is_equation: bool = False


class _Unsolvable(Exception):
    """There is no solution."""


class _TooLarge(Exception):
    """The system has more inequalities than are looked at."""


@dataclass(frozen=True)
class _Elimination:
    """A variable that was eliminated: by an equation, as `definition`, or from `rows`."""

    variable: Variable
    rows: tuple[AffineIndex, ...] = ()
    definition: AffineIndex | None = None


def has_no_solution(constraints: Iterable[Constraint]) -> bool:
    """Return True if constraints certainly have no solution in whole numbers."""
    try:
        _eliminate(constraints)
    except _Unsolvable:
        return True
    except _TooLarge:
        return False
    return False


def find_solution(constraints: Iterable[Constraint]) -> dict[Variable, int] | None:
    """Return whole numbers that satisfy constraints; None if there are none, or none was found."""
    constraints = list(constraints)
    try:
        eliminated = _eliminate(constraints)
    except (_Unsolvable, _TooLarge):
        return None
    # One count for the whole search, which goes back through all variables.
    tries = iter(range(MOST_TRIES))
    solution = _back_substitute(eliminated[::-1], {}, tries)
    if solution is None:
        return None
    values = {one: solution.get(one, 0) for constraint in constraints for one in constraint.form.terms}
    # Equations without a unit coefficient were relaxed, so the values are checked against all constraints.
    holds = all(_satisfies(one, values) for one in constraints)
    return values if holds else None


def _satisfies(constraint: Constraint, values: Mapping[Variable, int]) -> bool:
    number = constraint.form.value(values)
    assert number is not None
    return number == 0 if constraint.is_equation else number >= 0


def _eliminate(constraints: Iterable[Constraint]) -> list[_Elimination]:
    """Remove all variables from constraints by elimination; return the steps. Raise _Unsolvable or _TooLarge."""
    equations: list[AffineIndex] = []
    rows: list[AffineIndex] = []
    for form, is_equation in constraints:
        (equations if is_equation else rows).append(form)
    eliminated: list[_Elimination] = []
    while equations:
        equation = _divide_equation(equations.pop())
        if not equation.terms:
            continue
        unit = next((one for one, count in equation.terms.items() if abs(count) == 1), None)
        if unit is None:
            # Relaxed: both inequalities. That its constant is a multiple of the common divisor was checked.
            rows += [equation, equation.times(-1)]
            continue
        # With a coefficient of 1 or -1, the variable is a whole number for any values of the others.
        definition = equation.plus(AffineIndex({unit: equation.terms[unit]}), -1).times(-equation.terms[unit])
        eliminated.append(_Elimination(unit, definition=definition))
        equations = [_substitute(one, unit, definition) for one in equations]
        rows = [_substitute(one, unit, definition) for one in rows]
    _eliminate_inequalities(rows, eliminated)
    return eliminated


def _eliminate_inequalities(rows: list[AffineIndex], eliminated: list[_Elimination]) -> None:
    rows = _tighten(rows)
    while rows:
        counts: dict[Variable, list[int]] = {}
        for row in rows:
            for variable, factor in row.terms.items():
                counts.setdefault(variable, [0, 0])[factor > 0] += 1
        # The variable that adds the fewest inequalities: each of its lower bounds is combined with each upper one.
        variable = min(counts, key=lambda one: counts[one][0] * counts[one][1])
        lower = [row for row in rows if row.terms.get(variable, 0) > 0]
        upper = [row for row in rows if row.terms.get(variable, 0) < 0]
        rest = [row for row in rows if variable not in row.terms]
        eliminated.append(_Elimination(variable, (*lower, *upper)))
        for low in lower:
            rest += [low.times(-high.terms[variable]).plus(high, low.terms[variable]) for high in upper]
        rows = _tighten(rest)
        if len(rows) > MOST_ROWS:
            raise _TooLarge


def _divide_equation(equation: AffineIndex) -> AffineIndex:
    divisor = math.gcd(*equation.terms.values()) if equation.terms else 0
    if not divisor:
        if equation.constant:
            raise _Unsolvable
        return equation
    if equation.constant % divisor:
        raise _Unsolvable
    terms = {one: count // divisor for one, count in equation.terms.items()}
    return AffineIndex(terms, equation.constant // divisor)


def _tighten(rows: Iterable[AffineIndex]) -> list[AffineIndex]:
    """Return inequalities divided by the common divisors of their coefficients, of equal ones the strictest."""
    strictest: dict[frozenset[tuple[Variable, int]], AffineIndex] = {}
    for row in rows:
        if not row.terms:
            if row.constant < 0:
                raise _Unsolvable
            continue
        divisor = math.gcd(*row.terms.values())
        if divisor > 1:
            terms = {one: count // divisor for one, count in row.terms.items()}
            # Rounded down, which is inwards: `2 x - 1 >= 0` becomes `x - 1 >= 0`.
            row = AffineIndex(terms, row.constant // divisor)
        key = frozenset(row.terms.items())
        if key not in strictest or strictest[key].constant > row.constant:
            strictest[key] = row
    for key, row in strictest.items():
        # A lower bound above the upper bound of the same sum.
        opposite = strictest.get(frozenset((one, -count) for one, count in key))
        if opposite is not None and opposite.constant + row.constant < 0:
            raise _Unsolvable
    return list(strictest.values())


def _substitute(form: AffineIndex, variable: Variable, definition: AffineIndex) -> AffineIndex:
    factor = form.terms.get(variable, 0)
    if not factor:
        return form
    return form.plus(AffineIndex({variable: factor}), -1).plus(definition, factor)


def _back_substitute(
    eliminated: Sequence[_Elimination], values: dict[Variable, int], tries: Iterator[int]
) -> dict[Variable, int] | None:
    """Return values of all variables, the last eliminated one first; None where the search ends without any."""
    if not eliminated:
        return values
    first, rest = eliminated[0], eliminated[1:]
    for value in _candidates(first, values):
        if next(tries, None) is None:
            return None
        solution = _back_substitute(rest, {**values, first.variable: value}, tries)
        if solution is not None:
            return solution
    return None


def _candidates(one: _Elimination, values: Mapping[Variable, int]) -> Iterator[int]:
    """Yield the values of a variable that its constraints allow, given those that were eliminated after it."""
    if one.definition is not None:
        yield one.definition.constant + sum(count * values.get(atom, 0) for atom, count in one.definition.terms.items())
        return
    low, high = -math.inf, math.inf
    for row in one.rows:
        factor = row.terms[one.variable]
        rest = row.constant + sum(
            count * values.get(atom, 0) for atom, count in row.terms.items() if atom != one.variable
        )
        if factor > 0:
            # `-(rest // factor)` is `-rest / factor` rounded up.
            low = max(low, -(rest // factor))
        else:
            high = min(high, rest // -factor)
    if low == -math.inf and high == math.inf:
        yield 0
    elif low == -math.inf:
        yield from (int(high) - step for step in range(8))
    elif high == math.inf:
        yield from (int(low) + step for step in range(8))
    else:
        yield from range(int(low), min(int(high), int(low) + 64) + 1)
