"""Affine indices and aliasing: which elements an index names, and whether two uses of an array may meet in one.

An index such as `2 * t + 1` is a sum: a constant, and whole multiples of atoms. An atom is a loop variable, a size, an
argument, or an expression that is not such a sum (`idx[i]`, `t % 2`), which is equal only to itself.
`frontend/_indices.py` reads them from Python's tree, `analyses/_indices.py` from the IR; what follows from them is the
same and stands here:

- `never_equals`: the GCD test, for any two iterations;
- `distance`: the dependence distance, within one iteration;
- `never_alias`: the test for two given moments of a run (`DependenceQuery`), by steps and by ranges (Banerjee);
- `may_overwrite`: whether there is an anti-dependence, a write after a read;
- `each_moves_an_axis`: whether iterations of a loop keep to elements of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Atom = Any
"""On Python's tree, its text (`frontend/_indices.py`); in the IR, a local's name or an expression. Hashable."""

LARGEST_FACTOR = 2**16
"""Larger factors may wrap around: `i * 65536 * 65536` is 0 for every i of 32 bits. Multiples of smaller ones do not."""


@dataclass(frozen=True)
class AffineIndex:
    """`constant` plus each atom of `terms` times its factor.

    `wide` are atoms that it was made of and that may be vectors: then it spans as many axes as they have entries.
    """

    terms: Mapping[Atom, int] = field(default_factory=dict)
    constant: int = 0
    wide: frozenset[Hashable] = field(default=frozenset(), compare=False)

    def plus(self, other: AffineIndex, factor: int = 1) -> AffineIndex:
        """Return `self + factor * other`."""
        terms = dict(self.terms)
        for atom, count in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * count
        left = {atom: count for atom, count in terms.items() if count}
        return AffineIndex(left, self.constant + factor * other.constant, self.wide | other.wide)

    def times(self, factor: int) -> AffineIndex:
        terms = {atom: count * factor for atom, count in self.terms.items()} if factor else {}
        return AffineIndex(terms, self.constant * factor, self.wide)

    @property
    def number(self) -> int | None:
        """The index as a number; None if it has atoms or spans several axes."""
        return None if self.terms or self.wide else self.constant

    def value(self, known: Mapping[Any, int]) -> int | None:
        """Return the index as a number, given those of its atoms; None if one of them is missing."""
        if not all(atom in known for atom in self.terms):
            return None
        return self.constant + sum(factor * known[atom] for atom, factor in self.terms.items())

    def never_equals(self, other: AffineIndex, is_invariant: Callable[[Atom], bool]) -> bool:
        """Return True if the two differ in any two iterations, as `2 i` and `2 j + 1` do: the GCD test.

        `is_invariant` says which atoms are the same in all iterations. All of them must be whole numbers.
        """
        # 2 i - 2 j - 1 is never 0, as gcd(2, 2) does not divide 1. An invariant atom has one value in both indices, so
        # only the difference of its factors counts.
        step = 0
        for atom in {**self.terms, **other.terms}:
            mine, theirs = self.terms.get(atom, 0), other.terms.get(atom, 0)
            step = math.gcd(step, mine - theirs) if is_invariant(atom) else math.gcd(step, mine, theirs)
        gap = self.constant - other.constant
        return gap % step != 0 if step else gap != 0

    def distance(self, other: AffineIndex) -> int | None:
        """Return `self - other` within one iteration; None if that is not a number (the dependence distance)."""
        return self.constant - other.constant if self.terms == other.terms else None

    def moves_with(self, variable: Atom, is_invariant: Callable[[Atom], bool]) -> bool:
        """Return True if another value of a loop variable is another element, since nothing else in the index moves."""
        factor = self.terms.get(variable, 0)
        return 0 < abs(factor) < LARGEST_FACTOR and all(atom == variable or is_invariant(atom) for atom in self.terms)

    def text(self, name_of: Callable[[Atom], str] = str) -> str:
        """Return the sum as people write it, with what is added first: `n - 1`."""
        named = [(name_of(atom), count) for atom, count in self.terms.items()]
        parts = [(name if abs(count) == 1 else f"{abs(count)} * {name}", count) for name, count in named]
        parts += [(str(abs(self.constant)), self.constant)] if self.constant or not parts else []
        parts.sort(key=lambda one: one[1] < 0)
        text = "".join(f"{' - ' if count < 0 else ' + '}{part}" for part, count in parts)
        return text[3:] if text.startswith(" + ") else f"-{text[3:]}"


def combine(operator: str, left: AffineIndex, right: AffineIndex) -> AffineIndex | None:
    """Return `left + right`, `left - right` or `left * right`; None if that is not a sum of atoms."""
    match operator:
        case "+":
            return left.plus(right)
        case "-":
            return left.plus(right, -1)
        case "*" if not left.terms:
            return right.times(left.constant)
        case "*" if not right.terms:
            return left.times(right.constant)
    return None


def each_moves_an_axis(
    variables: Collection[Atom], indices: Sequence[Sequence[AffineIndex]], is_invariant: Callable[[Atom], bool]
) -> bool:
    """Return True if iterations share no element: each loop variable alone moves an axis, alike in all indices."""

    def moves(variable: Atom, axis: Sequence[AffineIndex]) -> bool:
        return all(one.moves_with(variable, is_invariant) and one.distance(axis[0]) == 0 for one in axis)

    axes = list(zip(*indices, strict=True))
    return all(any(moves(variable, axis) for axis in axes) for variable in variables)


# Two moments of a run ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class EnclosingLoop:
    """A loop around a use of an array.

    Attributes:
        key: tells it from other loops.
        variables: atoms of its variables.
        is_ascending: whether its only variable goes up, one by one.
        is_parallel: whether its iterations run in any order, or at once.
        is_task: whether it is a whole task of the kernel, in series: no engine reverses the order of its iterations.
        extent: the least and largest value of its only variable, where these are plain numbers.
    """

    key: str
    variables: tuple[Atom, ...]
    is_ascending: bool = False
    is_parallel: bool = False
    extent: tuple[int, int] | None = None
    is_task: bool = False

    @property
    def is_single(self) -> bool:
        """Whether the loop is written to run once, as `for _ in range(1)`."""
        return self.extent is not None and self.extent[0] == self.extent[1]


IsInvariant = Callable[[Atom, Collection[Atom]], bool]
"""Returns True if an atom has one value wherever each of some loop variables has one."""


@dataclass(frozen=True)
class DependenceQuery:
    """How far two moments of a run are known to agree.

    The loops of `same` are in the same iteration, `moved` in a later one (by at least one step),
    everything else anywhere. `extents` are the least and largest values of loop variables.
    """

    same: tuple[EnclosingLoop, ...]
    moved: EnclosingLoop | None
    is_invariant: IsInvariant
    extents: Mapping[Atom, tuple[int, int]] = field(default_factory=dict)

    def is_fixed(self, atom: Atom) -> bool:
        """Return True if an atom has the same value in both accesses that are compared."""
        return self.is_invariant(atom, {variable for loop in self.same for variable in loop.variables})


class Use(Protocol):
    """A use of an array's element: its index, the loops around it, its place in the text."""

    @property
    def index(self) -> tuple[AffineIndex, ...]: ...
    @property
    def loops(self) -> tuple[EnclosingLoop, ...]: ...
    @property
    def order(self) -> int: ...


def may_overwrite(change: Use, read: Use, is_invariant: IsInvariant) -> bool:
    """Return True if `change` may run after `read` on the same element: an anti-dependence.

    Iterations of a parallel loop are taken to keep to elements of their own, unless an index says that all of them
    use one.
    """
    both = zip(change.loops, read.loops, strict=False)
    common = tuple(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both))
    ranges = extents(change, read)
    queries = [DependenceQuery(common, None, is_invariant, ranges)] if change.order >= read.order else []
    for place, loop in enumerate(common):
        if loop.is_parallel and not loop.is_single and surely_one(change.index, read.index, is_invariant):
            return True
        if not (loop.is_parallel or loop.is_single):
            queries.append(DependenceQuery(common[:place], loop, is_invariant, ranges))
    return any(not never_alias(change.index, read.index, query) for query in queries)


def extents(one: Use, other: Use) -> dict[Atom, tuple[int, int]]:
    """Return the least and largest values of the variables of loops around two uses, where these are plain numbers."""
    return {v: loop.extent for loop in one.loops + other.loops for v in loop.variables if loop.extent}


def surely_one(first: tuple[AffineIndex, ...], second: tuple[AffineIndex, ...], is_invariant: IsInvariant) -> bool:
    """Return True if two indices are the same element in every iteration of every loop."""
    return first == second and all(is_invariant(atom, ()) for one in first for atom in one.terms)


def never_alias(later: tuple[AffineIndex, ...], earlier: tuple[AffineIndex, ...], query: DependenceQuery) -> bool:
    """Return True if two indices at two moments are certainly different elements."""
    gaps = [_gap(first, second, query) for first, second in _align_axes(later, earlier)]
    known = [gap for gap in gaps if gap is not None]
    if any(gap.never_closes(query) for gap in known):
        return True
    # Where a gap is a number of steps of one variable and nothing else, equal elements mean equal values of that
    # variable. If that is so for each variable of the moved loop, it has not moved, which contradicts the query.
    variables = query.moved.variables if query.moved else ()
    pinned = {next(iter(gap.steps)) for gap in known if len(gap.steps) == 1 and (gap.least, gap.most) == (0, 0)}
    return bool(variables) and pinned >= set(variables)


def _align_axes(first: Sequence[AffineIndex], second: Sequence[AffineIndex]) -> list[tuple[AffineIndex, AffineIndex]]:
    """Return pairs of parts of two indices that are the same axes: `g[f, base + offset]` and `g[f, i, j]` share `f`."""
    shorter = min(len(first), len(second))
    # A `wide` part may span several axes, so parts are aligned from the left up to the first part that differs in this,
    # and then from the right.
    left = next((k for k in range(shorter) if first[k].wide != second[k].wide), shorter)
    rest = shorter - left
    right = next((k for k in range(rest) if first[-1 - k].wide != second[-1 - k].wide), rest)
    pairs = [*zip(first[:left], second[:left], strict=True)]
    pairs += [(first[-1 - k], second[-1 - k]) for k in range(right)]
    if len(first) == len(second) == left + right + 1:
        # One part is left on each side: both stand for all the axes that the others leave.
        pairs.append((first[left], second[left]))
    return pairs


@dataclass(frozen=True)
class _Gap:
    """A difference of two indices: a number from `least` to `most`, and whole steps of the loop that moved."""

    least: int
    most: int
    steps: Mapping[Atom, int]

    def never_closes(self, query: DependenceQuery) -> bool:
        if not self.steps:
            return self.least > 0 or self.most < 0
        if len(self.steps) > 1 or query.moved is None:
            return False
        step = next(iter(self.steps.values()))
        if self.least == self.most:
            if self.least % step:
                return True
            # The number of steps after which the two meet.
            count = -self.least // step
            # The loop has moved by at least one step: forwards if it ascends, otherwise in an unknown direction.
            return count < 1 if query.moved.is_ascending else count == 0
        return query.moved.is_ascending and (self.least + step > 0 if step > 0 else self.most + step < 0)


def _gap(first: AffineIndex, second: AffineIndex, query: DependenceQuery) -> _Gap | None:
    """Return `first` at the later moment minus `second` at the earlier one; None if that has no known bounds."""
    moving = query.moved.variables if query.moved else ()
    steps = {v: first.terms[v] for v in moving if v in first.terms and first.terms[v] == second.terms.get(v)}
    # Such a product may wrap around, and then whole steps of the loop may lead to the same element.
    if any(abs(step) >= LARGEST_FACTOR for step in steps.values()):
        return None
    least = most = first.constant - second.constant
    for atom in {*first.terms, *second.terms} - steps.keys():
        one, two = first.terms.get(atom, 0), second.terms.get(atom, 0)
        # The same multiple of the same number: it cancels.
        if one == two and query.is_fixed(atom):
            continue
        if atom not in query.extents:
            return None
        low, high = query.extents[atom]
        # Banerjee's bounds: the atom may have any two values of its range at the two moments.
        ends = [factor * end for factor, end in ((one, low), (one, high))], [-two * low, -two * high]
        least += min(ends[0]) + min(ends[1])
        most += max(ends[0]) + max(ends[1])
    return _Gap(least, most, steps)


class PartialIndexMap:
    """Values filed under partly known indices: only some axes have a known index.

    A query yields the values whose indices may equal a given one.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[dict[int, int], Any]] = {}
        self._groups: dict[tuple[int, ...], list[Hashable]] = {}
        self._under: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[tuple[int, ...], list[Hashable]]] = {}

    def add(self, key: Hashable, known: Mapping[int, int], value: Any) -> None:
        """Add a value under an index with known numbers on some axes. It replaces an earlier value with an
        equal key.
        """
        is_new = key not in self._entries
        self._entries[key] = dict(known), value
        if not is_new:
            return
        axes = tuple(sorted(known))
        self._groups.setdefault(axes, []).append(key)
        for (group, common), places in self._under.items():
            if group == axes:
                places.setdefault(tuple(known[axis] for axis in common), []).append(key)

    def meeting(self, known: Mapping[int, int]) -> Iterator[Any]:
        """Yield the values whose indices may equal this one: on each axis that both know, the numbers are equal."""
        for group, keys in self._groups.items():
            common = tuple(axis for axis in group if axis in known)
            # The table of a combination of axes is made when it is first asked for; `add` keeps it complete from then
            # on.
            places = self._under.get((group, common))
            if places is None:
                places = self._under[group, common] = {}
                for key in keys:
                    numbers = self._entries[key][0]
                    places.setdefault(tuple(numbers[axis] for axis in common), []).append(key)
            for key in places.get(tuple(known[axis] for axis in common), ()):
                yield self._entries[key][1]
