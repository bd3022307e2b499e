"""What a kernel does with each array: which lines read it, write it, add to it.

The engines do not say. The bridge needs it to know which arrays must be saved for the
backward pass, which parameter is an output in truth, and where a value is overwritten that
the gradient still needs.
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass, field
from typing import Literal

from ._places import Form, Loop, Moment, apart, surely_one

Kind = Literal["read", "write", "add"]


@dataclass(frozen=True)
class Access:
    """One use of an array element: what is done, the index in letters, where, inside which loops.

    `is_fetched` says that an atomic's return value is used: the order of a parallel loop is in it. `is_guarded` that
    a branch or a `while` stands around it; `is_plain` that an addition, `x[i] = x[i] + e`, is no atomic one. `node` is
    the subscript.
    """

    kind: Kind
    index: tuple[Form, ...]
    place: str
    order: int
    loops: tuple[Loop, ...] = ()
    is_fetched: bool = False
    is_guarded: bool = False
    is_plain: bool = False
    node: ast.expr = field(default_factory=lambda: ast.Constant(None), compare=False, repr=False)


@dataclass
class Roles:
    """All uses of one array by a kernel.

    Attributes:
        escapes: a place that we could not follow, or "".
        repeats: where a function that is given the array calls itself, or "": by which indices the calls further inside
            use it is not followed.
        changing: arrays that the kernel changes, and that an index read from them may change with.
        rank: how many axes the array has; None where that is not known.
    """

    accesses: list[Access] = field(default_factory=list)
    escapes: str = ""
    repeats: str = ""
    changing: frozenset[str] = frozenset()
    rank: int | None = None

    def of(self, *kinds: Kind) -> list[Access]:
        return [access for access in self.accesses if access.kind in kinds]

    @property
    def is_read(self) -> bool:
        """Whether values flow from the array into the kernel, an atomic's own reading not counted."""
        return bool(self.escapes) or bool(self.of("read"))

    @property
    def is_written(self) -> bool:
        return bool(self.escapes) or bool(self.of("write", "add"))

    def is_aliased(self, *, in_reverse: bool) -> bool:
        """Whether the array is changed under several indices, and not only by so many elements apart.

        In reverse, what reads an array adds to its adjoint.
        """
        if not (in_reverse or self.is_written):
            return False
        stems = [tuple(form.atoms for form in access.index) for access in self.accesses]
        return bool(self.escapes or self.repeats) or any(stem != stems[0] for stem in stems)

    @property
    def fetched(self) -> Access | None:
        """A use of what an atomic on the array returns, if there is one."""
        return next((access for access in self.accesses if access.is_fetched), None)

    def overwritten(self, places: frozenset[str]) -> tuple[Access, Access] | None:
        """A read at one of `places`, and a change that may come after it on the same element: the value is gone."""
        for read_access in self.of("read"):
            if read_access.place not in places:
                continue
            for change in self.of("write", "add"):
                if self._may_undo(change, read_access):
                    return read_access, change
        return None

    def carried(self) -> tuple[Access, Access] | None:
        """A use and a change of what may be one element, in different iterations of a loop that no engine reverses."""
        pairs = itertools.product(self.accesses, self.of("write", "add"))
        return next(((one, change) for one, change in pairs if self._is_carried(one, change)), None)

    def _is_carried(self, one: Access, change: Access) -> bool:
        """Sums may be added up in any order."""
        if one.loops[:1] != change.loops[:1] or one.kind == change.kind == "add":
            return False
        ranges = extents(change, one)
        tasks = [loop for loop in one.loops[:1] if loop.is_task and not loop.is_single]
        moments = [Moment((), loop, self.changing, ranges) for loop in tasks]
        pairs = ((one.index, change.index), (change.index, one.index))
        return any(not apart(*pair, moment) for moment in moments for pair in pairs)

    def _may_undo(self, change: Access, read_access: Access) -> bool:
        """Whether `change` may run after `read_access` on the same element.

        Iterations of a parallel loop are taken to keep to elements of their own, unless an index
        says that all of them use one.
        """
        both = zip(change.loops, read_access.loops, strict=False)
        common = tuple(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both))
        ranges = extents(change, read_access)
        moments = [Moment(common, None, self.changing, ranges)] if change.order >= read_access.order else []
        for place, loop in enumerate(common):
            if loop.is_parallel and not loop.is_single and surely_one(change.index, read_access.index, self.changing):
                return True
            if not (loop.is_parallel or loop.is_single):
                moments.append(Moment(common[:place], loop, self.changing, ranges))
        return any(not apart(change.index, read_access.index, moment) for moment in moments)


def extents(one: Access, other: Access) -> dict[str, tuple[int, int]]:
    """The least and largest values of the variables of loops around two accesses, where these are plain numbers."""
    return {v: loop.extent for loop in one.loops + other.loops for v in loop.variables if loop.extent}
