"""The plan of a task's reverse: where each value comes from that the reverse needs. `decide` makes it, `emit` obeys.

`explain` prints it, a sentence a row:

    tape: `t` (f64) of each iteration of the loop in line 6, 8 bytes: its update cannot be undone without losing digits
    invert: `k` (i32) of each iteration of the loop in line 6: it is computed from the value of the next iteration
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ...ir import Names, Type, nodes, types
from ._regular_logs import RegularLog
from ._tapes import array_key


class How(Enum):
    """Where the reverse gets a value from."""

    RECOMPUTE = "recompute"
    INVERT = "invert"
    TAPE = "tape"
    LOG = "log"


class Decision(NamedTuple):
    """A row of the table. `str(decision)` is a sentence.

    Attributes:
        how: where the reverse gets the values from.
        values: locals or an array, as the source calls them.
        kind: the type of a local; None for arrays, and for several.
        of: whose values they are, in words.
        size: bytes that each of these takes.
        reason: why.
    """

    how: How
    values: tuple[str, ...]
    kind: Type | None
    of: str
    size: int
    reason: str

    def __str__(self) -> str:
        names = ", ".join(f"`{name}`" for name in self.values)
        kind = f" ({self.kind})" if self.kind else ""
        size = f", {self.size} bytes" if self.size else ""
        return f"{self.how.value}: {names}{kind} of {self.of}{size}: {self.reason}"


@dataclass(frozen=True)
class LoopPlan:
    """What is decided about a loop: what its reverse needs of an iteration, and where it gets it from.

    Attributes:
        taped: locals that an iteration is handed, which go on a tape.
        inverted: such locals that are computed backwards, from what the iteration hands on.
        logged: arrays whose overwritten values are logged.
        regular: those logs whose places follow from the text.
        is_idle: whether the loop need not change memory when it runs forward.
        may_be_kept: whether a forward pass can keep what the reverse needs of the loop's run, which is then left out.
        functions: values of functions that such a forward pass keeps of each iteration.
        recomputed: locals of an iteration that its reverse reads, and that are computed again for it.
        reasons: why locals are taped.
    """

    taped: tuple[str, ...] = ()
    inverted: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    regular: Mapping[str, RegularLog] = field(default_factory=dict)
    is_idle: bool = False
    may_be_kept: bool = False
    functions: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def heads(self) -> tuple[str, ...]:
        """Return the locals that an iteration is handed and that its reverse needs."""
        return (*self.taped, *self.inverted)


PLAIN_LOOP = LoopPlan()
"""Of a loop whose reverse needs nothing of an iteration but what it computes again."""


class ResultRoom(NamedTuple):
    """What memory for values of loops depends on.

    Attributes:
        place: the number of an iteration among the parallel ones.
        iterations: how many of these there are.
        known: arrays of the op.
        definitions: what locals are computed from, in which bounds of loops are written out.
        segments: what `find_segment_loops` returns for the task.
    """

    place: nodes.Expr
    iterations: nodes.Expr
    known: Collection[nodes.Array]
    definitions: Mapping[str, nodes.Expr]
    segments: Mapping[int, nodes.Size]


@dataclass(frozen=True)
class TaskPlan:
    """The plan of a task: which arrays its reverse works on in copies, and the plan of each of its loops.

    Attributes:
        state: arrays that its reverse changes in copies of them, and puts back as they were.
        settled: arrays that it reads and changes, and whose values the reverse finds in place.
        loops: by the numbers of its loops.
        results: memory in which a forward pass may keep what the reverse needs of loops; None where it keeps nothing.
    """

    state: frozenset[str]
    settled: frozenset[str]
    loops: Mapping[int, LoopPlan] = field(default_factory=dict)
    results: ResultRoom | None = None

    def of_loop(self, loop: nodes.Loop) -> LoopPlan:
        """Return the plan of a loop; that of a plain loop if nothing was decided for it."""
        return self.loops.get(loop.number, PLAIN_LOOP)


def describe_loop(
    loop: nodes.Loop, plan: LoopPlan, kernel: nodes.Kernel, names: Names, used: Container[str]
) -> Iterator[Decision]:
    """Return the rows of a loop. `used` are the keys of the tapes that the reverse reads."""
    of = f"each iteration of the loop in line {loop.line}"
    if loop.has_blocks:
        of = f"each block of iterations of the loop in line {loop.line}"
    elif loop.most is not None:
        of = f"each iteration of one block of the loop in line {loop.line}"

    def name_of(local: str) -> str:
        return kernel.source_name(names.root(local))

    for name in plan.taped:
        kind = names.types[name]
        # A tape that the reverse turned out not to read is not reserved, so it must not be listed either.
        if types.keeping(kind) in used:
            size = types.width(types.keeping(kind)) // 8
            yield Decision(How.TAPE, (name_of(name),), kind, of, size, plan.reasons[name])
    for name in plan.inverted:
        reason = "it is computed from the value of the next iteration"
        yield Decision(How.INVERT, (name_of(name),), names.types[name], of, 0, reason)
    for array in plan.logged:
        if array_key(array) in used:
            about = kernel.arrays[array]
            # Where a value belongs is kept beside it, as one i32 an axis, unless that follows from the text.
            places = 0 if array in plan.regular else 4 * about.rank
            reason = "stores of the loop overwrite it" + (
                "" if array in plan.regular else ", at indices that are known only at run time"
            )
            yield Decision(How.LOG, (array,), None, of, types.width(about.type) // 8 + places, reason)
    if plan.recomputed:
        values = tuple(dict.fromkeys(map(name_of, plan.recomputed)))
        yield Decision(How.RECOMPUTE, values, None, of, 0, "all their operands are available")
