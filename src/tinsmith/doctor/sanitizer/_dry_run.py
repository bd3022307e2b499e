"""Dry run: interprets an op's kernels once, before a check launches them.

A compiled kernel that indexes out of bounds corrupts memory, one that divides an integer by zero ends the process, and
one that never ends blocks it. The interpreter survives all three and reports where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..._errors import KernelError
from ...engines import NoRule
from ...ir import NotCovered, nodes, types, walk
from ...linter import Finding, in_order
from ...operation.examination import Examination
from .._budget import OPERATIONS, TooLong
from ._sanitize import Run

HAZARDS = {
    "TS602": "what is read before it is written may be anything",
    "TS604": "compiled kernels that leave their arrays harm memory",
    "TS607": "a compiled kernel that divides an integer by zero ends the process",
    "TS610": "an element that is never written may hold anything, and its gradient too",
}
"""The rules whose errors make a launch dangerous or its result meaningless, with the reason."""


@dataclass(frozen=True)
class DryRun:
    """What one interpreted run says about launching an op on these inputs.

    Attributes:
        hazards: the findings that rule out a launch, the worst first.
        unknown: why the run did not finish, in words that call the interpreter "it"; "" if it finished.
        unreached: lines that compute with floats and never ran; empty if the run did not finish.
        is_endless: whether it was stopped in a `while` that may never end.
    """

    hazards: list[Finding] = field(default_factory=list)
    unknown: str = ""
    unreached: tuple[int, ...] = ()
    is_endless: bool = False

    @property
    def obstacle(self) -> str:
        """Why nothing may be launched; "" if the run found no obstacle."""
        if self.hazards:
            return f"{HAZARDS[self.hazards[0].rule]} (line {self.hazards[0].line})"
        return self.unknown if self.is_endless else ""


def is_hazard(finding: Finding) -> bool:
    """Return True if a finding rules out a launch of compiled kernels."""
    return finding.rule in HAZARDS and finding.severity == "error"


def dry_run(call: Examination) -> DryRun:
    """Interpret an op's kernels forward, in their own precision, and say whether a launch is safe.

    Comments that suppress findings are ignored: they make no launch safer.
    """
    if call.reason_unreadable:
        return DryRun(unknown=call.reason_unreadable)
    run = Run(call)
    try:
        run.forward({}, with_gradient=False, seeded=call.draws)
        return DryRun(_hazards(run), unreached=_find_unreached_lines(call, run.numbers.reached))
    except TooLong:
        longest = run.numbers.longest_while
        if 2 * longest.operations > OPERATIONS:
            words = f"the `while` in line {longest.line} had not ended after {longest.turns:,} turns, and may never end"
            return DryRun(_hazards(run), unknown=words, is_endless=True)
        return DryRun(_hazards(run), unknown=f"it would take more than {OPERATIONS:,} operations")
    except NoRule as reason:
        return DryRun(unknown=f"{reason.construct}, in line {reason.line}, is not known to it")
    except NotCovered as reason:
        return DryRun(unknown=f"{reason.construct}, at {reason.place}, is not known to it")
    except KernelError as reason:
        return DryRun(unknown=str(reason).splitlines()[0])


def _hazards(run: Run) -> list[Finding]:
    hazards = [one for one in in_order(run.log.findings()) if is_hazard(one)]
    return sorted(hazards, key=lambda one: _WORST_FIRST.index(one.rule))


_WORST_FIRST = ("TS604", "TS607", "TS602", "TS610")


def _find_unreached_lines(call: Examination, reached: Mapping[str, set[int]]) -> tuple[int, ...]:
    """Return the lines that assign a float to a local or an array, and did not run."""
    unreached: set[int] = set()
    for lowered in call.kernels:
        kernel = lowered.kernel
        wanted = {stmt.line for stmt in walk.statements(kernel.body) if _makes_float(kernel, stmt)}
        unreached |= wanted - reached.get(kernel.path, set())
    return tuple(sorted(unreached))


def _makes_float(kernel: nodes.Kernel, stmt: nodes.Stmt) -> bool:
    match stmt:
        case nodes.Assign(name):
            return types.is_float(kernel.locals[name])
        case nodes.Decompose():
            return True
        case nodes.Store() | nodes.Atomic():
            return types.is_float(kernel.arrays[stmt.array].type)
    return False
