"""What a kernel does with each array: which lines read it, write it, add to it.

The engines do not say. The bridge needs it to know which arrays must be saved for the
backward pass, which parameter is an output in truth, and where a value is overwritten that
the gradient still needs.
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass, field

from ..ir import AffineIndex, DependenceQuery, EnclosingLoop, IsInvariant, extents, may_overwrite, never_alias
from ._effects import Kind
from ._indices import invariant_without


@dataclass(frozen=True)
class Access:
    """One use of an array element: what is done, the index in letters, where, inside which loops.

    `is_fetched`: an atomic's return value, which depends on the order of a parallel loop, is taken; `is_used`: it
    reaches something that is stored, returned or decided. `is_guarded`: a branch or a `while` is around it. `is_plain`:
    an addition, `x[i] = x[i] + e`, is not atomic. `node`: the subscript.
    """

    kind: Kind
    index: tuple[AffineIndex, ...]
    place: str
    order: int
    loops: tuple[EnclosingLoop, ...] = ()
    is_fetched: bool = False
    is_used: bool = False
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
        static_size: where its size or dtype must be known at compilation, `ti.static(x.shape[0] > 2)`, or "". That
            of an array is an expression there, which Python takes for true, whatever it would be.
        stopped: where its gradient is stopped, `ti.stop_grad(x)`, or "".
        changing: arrays that the kernel changes, and that an index read from them may change with.
        rank: how many axes the array has; None where that is not known.
    """

    accesses: list[Access] = field(default_factory=list)
    escapes: str = ""
    repeats: str = ""
    static_size: str = ""
    stopped: str = ""
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
        stems = [tuple(part.terms for part in access.index) for access in self.accesses]
        return bool(self.escapes or self.repeats) or any(stem != stems[0] for stem in stems)

    @property
    def use_of_result(self) -> Access | None:
        """A use of what an atomic on the array returns, if there is one."""
        return next((access for access in self.accesses if access.is_fetched), None)

    @property
    def is_invariant(self) -> IsInvariant:
        """Which atoms of its indices have one value wherever loop variables have."""
        return invariant_without(self.changing)

    def find_overwritten(self, places: frozenset[str]) -> tuple[Access, Access] | None:
        """A read at one of `places`, and a change that may come after it on the same element: the value is gone."""
        reads = [access for access in self.of("read") if access.place in places]
        pairs, is_invariant = itertools.product(reads, self.of("write", "add")), self.is_invariant
        return next(((read, change) for read, change in pairs if may_overwrite(change, read, is_invariant)), None)

    def find_carried(self) -> tuple[Access, Access] | None:
        """A use and a change of what may be one element, in different iterations of a loop that no engine reverses."""
        pairs = itertools.product(self.accesses, self.of("write", "add"))
        return next(((one, change) for one, change in pairs if self._is_carried(one, change)), None)

    def _is_carried(self, one: Access, change: Access) -> bool:
        """Sums may be added up in any order."""
        if one.loops[:1] != change.loops[:1] or one.kind == change.kind == "add":
            return False
        tasks = [loop for loop in one.loops[:1] if loop.is_task and not loop.is_single]
        queries = [DependenceQuery((), loop, self.is_invariant, extents(change, one)) for loop in tasks]
        pairs = ((one.index, change.index), (change.index, one.index))
        return any(not never_alias(*pair, query) for query in queries for pair in pairs)
