"""Roles: where a kernel reads an array, writes it, or adds to it.

The engines do not report this. `calls` needs it to know which arrays must be saved for the backward pass, which
parameters are outputs, and where a value is overwritten that the gradient still needs.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from ...ir import AffineIndex, DependenceQuery, EnclosingLoop, IsInvariant, extents, may_overwrite, never_alias
from .._effects import Kind
from .._indices import invariant_without


@dataclass(frozen=True)
class Access:
    """One use of an array element: its kind, its index, its place as `file:line`, the loops around it.

    `order` counts statements. `is_fetched`: an atomic is an expression; its value depends on the order of a parallel
    loop. `is_used`: this value reaches a store, a result or a condition. `is_guarded`: a branch or a `while` is around
    the use. `is_plain`: an addition, `x[i] = x[i] + e`, is not atomic. `member`: the attributes in `x[i].y.z`, "y.z".
    `node`: the subscript.
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
    member: str = ""
    node: ast.expr = field(default_factory=lambda: ast.Constant(None), compare=False, repr=False)


@dataclass
class Roles:
    """All uses of one array by a kernel.

    Attributes:
        escapes: where the array is used in a way that is not followed, or "".
        repeats: where a function that gets the array calls itself, or "". The indices of the calls inside that are not
            known.
        static_size: where its size or dtype must be known at compilation, `ti.static(x.shape[0] > 2)`, or "". For an
            array the engine has an expression there, which Python takes for true.
        stopped: where its gradient is stopped, `ti.stop_grad(x)`, or "".
        changing: arrays that the kernel changes. An index that is read from one may change too.
        rank: the number of axes; None if unknown.
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
        """True if values flow from the array into the kernel. Reads by additions do not count."""
        return bool(self.escapes) or bool(self.of("read"))

    @property
    def is_written(self) -> bool:
        return bool(self.escapes) or bool(self.of("write", "add"))

    def is_aliased(self, *, in_reverse: bool) -> bool:
        """Return True if the array is changed and its indices differ by more than a constant.

        In reverse, what reads an array adds to its adjoint.
        """
        # For `CompileOptions.is_aliased`: Taichi 1.7.4 loses additions to `y[i]` in a loop over j that also adds to
        # `y[j]`.
        if not (in_reverse or self.is_written):
            return False
        stems = [tuple(part.terms for part in access.index) for access in self.accesses]
        return bool(self.escapes or self.repeats) or any(stem != stems[0] for stem in stems)

    @property
    def use_of_result(self) -> Access | None:
        """The first use of what an atomic on the array returns; None without one."""
        return next((access for access in self.accesses if access.is_fetched), None)

    @property
    def is_invariant(self) -> IsInvariant:
        """The test for atoms of its indices that have one value wherever given loop variables have."""
        return invariant_without(self.changing)

    def find_overwritten(
        self, places: frozenset[str], are_apart: Callable[[Access, Access], bool] = lambda _, __: False
    ) -> tuple[Access, Access] | None:
        """Return a read at one of `places`, and a change that may overwrite the element afterwards; None without.

        `are_apart` is what else is known of a read and a change: whether they certainly use different elements.
        """
        reads = [access for access in self.of("read") if access.place in places]
        pairs, is_invariant = itertools.product(reads, self.of("write", "add")), self.is_invariant
        overwriting = ((read, change) for read, change in pairs if may_overwrite(change, read, is_invariant))
        return next((pair for pair in overwriting if not are_apart(*pair)), None)

    def find_carried(self, uses: tuple[Kind, ...] = ("read", "write", "add")) -> tuple[Access, Access] | None:
        """Return a use and a change of one element in different iterations of a serial task; None without.

        `uses` are the kinds of uses that are asked about.
        """
        pairs = itertools.product(self.of(*uses), self.of("write", "add"))
        return next(((one, change) for one, change in pairs if self._is_carried(one, change)), None)

    def _is_carried(self, one: Access, change: Access) -> bool:
        """Return True if a use and a change may be of one element in different iterations of a serial task."""
        # Sums may be added up in any order.
        if one.loops[:1] != change.loops[:1] or one.kind == change.kind == "add":
            return False
        # The engines' reverse mode runs an outermost serial loop forwards, so it is wrong where one
        # iteration uses what another changed: Taichi's gradient of a running sum reached the last summand alone.
        tasks = [loop for loop in one.loops[:1] if loop.is_task and not loop.is_single]
        queries = [DependenceQuery((), loop, self.is_invariant, extents(change, one)) for loop in tasks]
        # Either may be the one in the earlier iteration.
        pairs = ((one.index, change.index), (change.index, one.index))
        return any(not never_alias(*pair, query) for query in queries for pair in pairs)
