"""Bounds: accesses whose index certainly leaves its array, whatever the sizes and arguments are.

A loop variable reaches both ends of its range in some iteration, so an affine index of variables with independent
ranges reaches both of its own ends, provided that nothing keeps the access from running. An access under a branch, in
an inner loop that may not run, or behind a `break` or `continue` is left out, and so is an index that is not affine:
the sanitizer sees those in a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ..ir import AffineIndex, Operator, nodes, number
from ._access_walk import canonical_size, find_accesses
from ._accesses import LoopAccess
from ._forms import Atom, IterationForms

_ONE = AffineIndex(constant=1)


class OutOfRange(NamedTuple):
    """An access that leaves its array.

    Attributes:
        access: the access.
        axis: the axis along which it does.
        reached: the number that the index reaches there, as a sum of `Atom`s.
        size: the size of the axis, as such a sum.
        is_constant: whether the index is that number in all iterations.
    """

    access: LoopAccess
    axis: int
    reached: AffineIndex
    size: AffineIndex
    is_constant: bool


class _Ends(NamedTuple):
    """The least and the greatest value of an index; None where unknown."""

    least: AffineIndex | None
    greatest: AffineIndex | None


def stays_inside(kernel: nodes.Kernel) -> bool:
    """Return True if no index of a kernel certainly leaves its array."""
    return not find_out_of_range(kernel, [name for name, one in kernel.arrays.items() if not one.is_clamped])


def find_out_of_range(kernel: nodes.Kernel, arrays: Collection[str]) -> list[OutOfRange]:
    """Return the accesses that certainly leave their array, along their first such axis, in the order of their lines.

    Args:
        kernel: the kernel.
        arrays: the arrays that are looked at, whose indices count from 0.
    """
    if not arrays:
        return []
    search = _Search(kernel, arrays)
    # What stands beside the loops runs once.
    once = (number(0), number(1))
    beside = nodes.For(("once",), (once,), tuple(one for one in kernel.body if not isinstance(one, nodes.For)))
    loops = (beside, *(one for one in kernel.body if isinstance(one, nodes.For)))
    return sorted((one for loop in loops for one in search.find(loop)), key=lambda one: one.access.line)


class _Search:
    """Finds the accesses of a kernel that certainly leave one of some arrays."""

    def __init__(self, kernel: nodes.Kernel, arrays: Collection[str]) -> None:
        self.kernel = kernel
        self.arrays = arrays
        self.forms = IterationForms({}, {})
        self.sizes = [self.size(name, axis) for name in arrays for axis in range(len(kernel.arrays[name].dims))]

    def size(self, array: str, axis: int) -> AffineIndex | None:
        dims = self.kernel.arrays[array].dims
        is_known = not dims or axis < len(dims)
        return self.forms.form(canonical_size(self.kernel.arrays, array, axis)) if is_known else None

    def find(self, loop: nodes.For) -> Iterator[OutOfRange]:
        for access in find_accesses(self.kernel, loop):
            # Under any condition but bounds of loops, it may be that no iteration gets there.
            if access.array in self.arrays and all(one.is_bound for one in access.conditions):
                ranges = self.ranges(access)
                # If the outermost loop does not run, there is no access at all: what is said holds where it runs.
                if all(self.runs(*ends) for ends in list(ranges.values())[len(loop.names) :]):
                    yield from self.check(access, ranges)

    def ranges(self, access: LoopAccess) -> dict[Atom, _Ends]:
        """Return the ranges of the variables of the loops around an access, the outermost first."""
        ranges: dict[Atom, _Ends] = {}
        for one in access.conditions:
            match one.expr:
                case nodes.Binary(Operator.GE, variable, low):
                    ranges[self.forms.atom(variable)] = _Ends(self.forms.form(low), None)
                case nodes.Binary(Operator.LT, variable, end):
                    after, known = self.forms.form(end), ranges[self.forms.atom(variable)]
                    ranges[self.forms.atom(variable)] = known._replace(greatest=after and after.plus(_ONE, -1))
        return ranges

    def runs(self, least: AffineIndex | None, greatest: AffineIndex | None) -> bool:
        """Return True if a loop certainly has an iteration, but for small arrays."""
        if least is None or greatest is None:
            return False
        # A loop over an axis, or over a sum of sizes, runs unless arrays are small. Of any other number of iterations
        # nothing is certain.
        trips = greatest.plus(_ONE).plus(least, -1)
        if not trips.terms:
            return trips.constant > 0
        return trips in self.sizes or all(factor > 0 and _is_size(atom) for atom, factor in trips.terms.items())

    def check(self, access: LoopAccess, ranges: Mapping[Atom, _Ends]) -> Iterator[OutOfRange]:
        for axis, part in enumerate(access.index):
            index, size = self.forms.form(part), self.size(access.array, axis)
            ends = index and _ends(index, ranges)
            if ends is None or size is None or ends.least is None or ends.greatest is None:
                continue
            is_constant = ends.least == ends.greatest
            # `-1 - least >= 0` says that the least index is negative, `greatest - size >= 0` that the greatest is too
            # large.
            if _is_natural(ends.least.plus(_ONE).times(-1)):
                yield OutOfRange(access, axis, ends.least, size, is_constant)
                return
            if _is_natural(ends.greatest.plus(size, -1)):
                yield OutOfRange(access, axis, ends.greatest, size, is_constant)
                return


def _ends(index: AffineIndex, ranges: Mapping[Atom, _Ends]) -> _Ends | None:
    """Return what an index reaches at both ends; None where that is not known."""
    least = greatest = AffineIndex(constant=index.constant)
    for atom, factor in index.terms.items():
        if not atom.is_private:
            least, greatest = (end.plus(AffineIndex({atom: factor})) for end in (least, greatest))
            continue
        # A negative factor exchanges the ends.
        low, high = ranges.get(atom, _Ends(None, None))[:: 1 if factor > 0 else -1]
        if low is None or high is None or any(one.is_private for end in (low, high) for one in end.terms):
            # A range that moves with another loop: not all of its ends meet.
            return None
        least, greatest = least.plus(low, factor), greatest.plus(high, factor)
    return _Ends(least, greatest)


def _is_natural(number: AffineIndex) -> bool:
    """Return True if a number is not negative, whatever the sizes in it are from 1 on."""
    if any(factor < 0 or not _is_size(atom) for atom, factor in number.terms.items()):
        return False
    return sum(number.terms.values()) + number.constant >= 0


def _is_size(atom: Atom) -> bool:
    return isinstance(atom.expr, nodes.Size)
