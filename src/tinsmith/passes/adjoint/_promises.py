"""Places that a spec promises are different: `unique idx[n]`, `segments rays[r, 2]`, `ranges tiles[t, 2]`, and
`offsets start[r]`, whose segments go from `start[r]` to `start[r + 1]`.

The text of `x[idx[i]]` does not tell that two iterations read different elements, nor that of `x[s]` for s in a segment
that memory holds. Where the spec says so, the adjoint adds without atomics.

An axis of an index tells iterations apart by what it is equal for: `idx[i]` is equal for equal `i` alone where `idx`
is unique, and a place in a segment of row `r` is one of no other row. So does the index of a promised array in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeGuard

from ..._lazy import lazy
from ...analyses import Expander, affine, is_invariant, moving_variables
from ...ir import AffineIndex, Type, nodes, number, walk
from ._ssa import Step, parallel_loop, repeatable_definitions

Index = tuple[nodes.Expr, ...]
_INDICES = (Type.I32, Type.I64)
_WHOLE = (Type.I8, Type.I16, *_INDICES, Type.U8, Type.U16, Type.U32, Type.U64)
_MOST_CHOICES = 6
"""The most minima and maxima in a proof that looks at both sides of each; one more could double the work."""


@dataclass(frozen=True)
class Promise:
    """What a spec says of the numbers in an input.

    Attributes:
        kind: "unique", "segments" (rows of a start and a count), "ranges" (of a start and an end), or "offsets", where
            a number is the end of one segment and the start of the next.
        is_by_sample: whether the first axis is that of a batch: it holds for each sample by itself.
    """

    kind: str
    is_by_sample: bool = False


NO_PROMISES: Mapping[str, Promise] = MappingProxyType({})


def find_promised_arrays(steps: Sequence[Step], promises: Mapping[str, Promise]) -> frozenset[str]:
    """Return the arrays without an element that two iterations of the parallel loop use, according to promises."""
    loop = parallel_loop(steps)
    if not promises or loop is None:
        return frozenset()
    proof = _Proof(steps, loop, promises)
    uses: dict[str, dict[Index, None]] = {}
    for one in (*walk.loads(steps), *walk.stores(steps)):
        uses.setdefault(one.array, {})[tuple(map(proof.steady, one.index))] = None
    variables = {*moving_variables(loop.names, loop.bounds)}
    return frozenset(name for name, indices in uses.items() if variables <= proof.find_fixed_variables([*indices]))


def find_segment_loops(steps: Sequence[Step], promises: Mapping[str, Promise]) -> dict[int, nodes.Size]:
    """Return the inner loops over promised segments, by number, with the size of an array that covers all segments.

    In such a loop no two iterations of the parallel loop have one value of the loop's variable, and each value is the
    first index of an element that is certainly read. So memory of this size has an element for each iteration.
    """
    loop = parallel_loop(steps)
    if not promises or loop is None:
        return {}
    proof, variables = _Proof(steps, loop, promises), {*moving_variables(loop.names, loop.bounds)}
    sizes: dict[int, nodes.Size] = {}
    for inner in loop.body:
        if not isinstance(inner, nodes.Loop) or len(inner.names) != 1 or inner.exit is not None:
            continue
        place = nodes.Local(inner.names[0], Type.I32)
        # What stands in a branch, or in a loop, may not be read.
        read = [load for one in inner.body if isinstance(one, nodes.Assign) for load in walk.loads([one])]
        covering = next((load.array for load in read if load.index[:1] == (place,)), None)
        if covering is not None and variables <= proof.find_fixed_variables([(proof.steady(place),)]):
            sizes[inner.number] = nodes.Size(covering, 0)
    return sizes


class _Proof:
    """What indices tell of the iteration that they are used in."""

    def __init__(self, steps: Sequence[Step], loop: nodes.Loop, promises: Mapping[str, Promise]) -> None:
        self.loop = loop
        self.steps = steps
        self.promises = promises
        # What is read from an array that the task changes may be another number at the next read: such locals stay.
        self.expand = Expander(repeatable_definitions(walk.statements(steps), walk.find_changed(steps)))

    def find_fixed_variables(self, indices: Sequence[Index]) -> set[str]:
        """Return the variables of the parallel loop that are equal whenever two of the indices name one element."""
        variables: set[str] = set()
        axes = list(zip(*indices, strict=True))
        # What one axis shows may be what another one needs, so each axis is asked as often as there are axes.
        for _ in axes:
            for axis in axes:
                variables |= self._find_fixed_by_axis(axis, variables)
        return variables

    def _find_fixed_by_axis(self, axis: Sequence[nodes.Expr], known: set[str]) -> set[str]:
        sums = [affine(one, {}) for one in axis]
        variables = {
            name
            for name in self.loop.names
            if all(one.moves_with(name, is_invariant) and one.distance(sums[0]) == 0 for one in sums)
        }
        for array, promise in self.promises.items():
            if promise.kind == "unique":
                parts = [self._number(one, array) for one in sums]
                # `idx[i]` and `idx[i] + 1` may meet at two `i`, so all uses need one factor and one summand.
                alike = {None if part is None else part[1:] for part in parts}
                rows = [part[0] for part in parts if part is not None] if len(alike) == 1 else []
            else:
                rows = [row for one in sums for row in self._rows(one, array)]
            if len(rows) == len(sums):
                variables |= self._find_fixed_by_rows(rows, promise, known)
        return variables

    def _find_fixed_by_rows(self, rows: Sequence[Index], promise: Promise, known: set[str]) -> set[str]:
        """Return the variables that are equal whenever two of these rows of a promised array are the same row."""
        if not promise.is_by_sample:
            return self.find_fixed_variables(rows)
        samples = [affine(one, {}) for one, *_ in rows]
        is_one = all(one.distance(samples[0]) == 0 for one in samples)
        if not is_one or not all(atom in known or is_invariant(atom) for atom in samples[0].terms):
            # The promise holds within a sample: two samples may have the same numbers.
            return set()
        return self.find_fixed_variables([row[1:] for row in rows])

    def _number(self, index: AffineIndex, array: str) -> tuple[Index, int, int, tuple[object, ...]] | None:
        """Match `factor * array[row] + rest`: return the row, the factor, the constant and the other terms; or None."""
        loads = [atom for atom in index.terms if isinstance(atom, nodes.Load) and atom.array == array]
        others = {atom: count for atom, count in index.terms.items() if atom not in loads}
        if len(loads) != 1 or not index.moves_with(loads[0], is_invariant):
            return None
        factor = index.terms[loads[0]]
        added = tuple(sorted(others.items(), key=repr))
        return (*loads[0].index, *_entry(loads[0])), factor, index.constant, added

    def _rows(self, index: AffineIndex, array: str) -> Iterator[Index]:
        """Yield the row in whose segment an index certainly lies; nothing if that is not shown."""
        for row in self._segments[array]:
            start, second = self._both_numbers(array, row)
            if start is None or second is None:
                continue
            end = start.plus(second) if self.promises[array].kind == "segments" else second
            least, most = self._extreme(index, is_upper=False), self._extreme(index, is_upper=True)
            last = end.plus(AffineIndex(constant=-1))
            # Shown over all iterations of the inner loops: start <= least, and most <= end - 1.
            if self._is_natural(least.plus(start, -1)) and self._is_natural(last.plus(most, -1)):
                yield row
                return

    def _both_numbers(self, array: str, row: Index) -> tuple[AffineIndex | None, AffineIndex | None]:
        """Return the loads of a row's start and of its count or end; None for one that the task does not read."""
        if self.promises[array].kind != "offsets":
            loads = self._loads[array, row]
            return _part(loads, 0), _part(loads, 1)
        # A segment of offsets ends where the next one starts, so its end is a load from the row after it.
        last = affine(row[-1], {})
        ends = (
            load
            for (name, other), (load, *_) in self._loads.items()
            if name == array and other[:-1] == row[:-1] and affine(other[-1], {}).distance(last) == 1
        )
        return AffineIndex({self._loads[array, row][0]: 1}), next((AffineIndex({one: 1}) for one in ends), None)

    @lazy
    def _loads(self) -> dict[tuple[str, Index], list[nodes.Load]]:
        """Return the loads of starts, counts and ends, by array and row."""
        loads_by_row: dict[tuple[str, Index], dict[nodes.Load, None]] = {}
        for one in walk.loads(self.steps):
            load = self.steady(one)
            if isinstance(load, nodes.Load) and load.array in self.promises:
                row = (*load.index, *_entry(load))
                # The last axis of `segments` and `ranges` tells the two
                # numbers of one row apart; `offsets` have no such axis.
                row = row if self.promises[load.array].kind == "offsets" else row[:-1]
                loads_by_row.setdefault((load.array, row), {})[load] = None
        return {key: [*loads] for key, loads in loads_by_row.items()}

    @lazy
    def _segments(self) -> dict[str, list[Index]]:
        """Return, for each array with a promise, the indices at which the task loads from it."""
        return {name: [row for array, row in self._loads if array == name] for name in self.promises}

    @lazy
    def _bounds(self) -> dict[str, tuple[AffineIndex, AffineIndex]]:
        """Return the first and last value of each variable of a loop inside the parallel one."""
        inner = (one for one in walk.statements(self.loop.body) if isinstance(one, nodes.Loop))
        pairs = [(name, pair) for one in inner for name, pair in zip(one.names, one.bounds, strict=False)]
        names = [name for name, _ in pairs]
        one = AffineIndex(constant=1)
        return {
            name: (affine(self.steady(first), {}), affine(self.steady(end), {}).plus(one, -1))
            for name, (first, end) in pairs
            if names.count(name) == 1
        }

    def _extreme(self, index: AffineIndex, *, is_upper: bool) -> AffineIndex:
        """Return the minimum (or, if `is_upper`, the maximum) of an index over all iterations of the inner loops."""
        # The bounds of one loop may name another one's variable.
        for _ in self._bounds:
            moving = [atom for atom in index.terms if isinstance(atom, str) and atom in self._bounds]
            if not moving:
                break
            factor = index.terms[moving[0]]
            # A negative factor has its greatest product at the first iteration.
            value = self._bounds[moving[0]][is_upper if factor > 0 else not is_upper]
            index = index.plus(AffineIndex({moving[0]: factor}), -1).plus(value, factor)
        return index

    def _is_natural(self, index: AffineIndex, choices: int = _MOST_CHOICES) -> bool:
        """Return True if a sum is certainly at least 0, given that sizes, starts and counts are."""
        choice = next((atom for atom in index.terms if _is_choice(atom)), None)
        if choice is None:
            return index.constant >= 0 and all(c > 0 and self._is_number(a) for a, c in index.terms.items())
        if not choices:
            return False
        factor = index.terms[choice]
        rest = index.plus(AffineIndex({choice: factor}), -1)
        sides = (rest.plus(affine(one, {}), factor) for one in (choice.left, choice.right))
        # max(a, b) is at least 0 if either is, min(a, b) if both are. A negative factor exchanges the two.
        of = any if (choice.operator == "max") == (factor > 0) else all
        return of(self._is_natural(side, choices - 1) for side in sides)

    def _is_number(self, atom: str | nodes.Expr) -> bool:
        """Return True if a term of an index, such as a size or a promised start, is never negative."""
        if isinstance(atom, nodes.Load):
            # Numbers that are promised to differ may be negative. Starts, counts and ends of segments are not.
            return atom.array in self.promises and self.promises[atom.array].kind != "unique"
        return isinstance(atom, nodes.Size)

    def steady(self, expr: nodes.Expr) -> nodes.Expr:
        """Expand an expression as far as it reads no memory that the task changes, and drop casts to index types.

        Promised numbers differ as 32-bit numbers, and an index is such a number, so a cast makes no two of them equal.
        """
        return _without_casts(self.expand(expr))


def _without_casts(expr: nodes.Expr) -> nodes.Expr:
    inner = walk.rebuild(expr, _without_casts)
    if isinstance(inner, nodes.Cast) and not inner.keeps_bits and inner.type in _INDICES and inner.value.type in _WHOLE:
        return inner.value
    return inner


def _is_choice(atom: object) -> TypeGuard[nodes.Binary]:
    return isinstance(atom, nodes.Binary) and atom.operator in ("min", "max") and atom.type in _INDICES


def _entry(load: nodes.Load) -> Index:
    """Return the number of the vector's entry that is read, as one more axis."""
    return tuple([number(one) for one in load.entry])


def _part(loads: Sequence[nodes.Load], place: int) -> AffineIndex | None:
    """Return the load of the first or second number of a row; None if there is none."""
    wanted = number(place)
    matching = (one for one in loads if (*one.index, *_entry(one))[-1] == wanted)
    return next((AffineIndex({one: 1}) for one in matching), None)
