"""Findings about the gradient by one input: the disagreement, its place, and the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ...frontend import Columns
from ...ir import NotCovered, nodes, walk
from ...linter import Finding, Severity
from ...operation.examination import Examination
from ._comparison import Disagreement, InputDerivatives
from ._function import find_greatest
from ._proposal import Proposal
from ._verdict import Kind, Point

_SEVERITIES: dict[Kind, tuple[str, Severity]] = {
    Kind.WRONG: ("TS701", "error"),
    Kind.ALL_DIFFER: ("TS701", "error"),
    Kind.ORACLE: ("TS701", "warning"),
    Kind.DIFFERENCES: ("TS702", "warning"),
    Kind.CONVENTION: ("TS702", "warning"),
    Kind.AT_KINK: ("TS702", "info"),
}


def describe_gradient(call: Examination, compared: InputDerivatives) -> list[Finding]:
    """Return the findings about disagreements in the derivatives by one input."""
    read, stored = _places(call, compared.name)
    findings = []
    for one in compared.disagreements:
        rule, severity = _SEVERITIES[one.kind]
        parts = {"where": _where(compared, one), "numbers": _numbers(call, one.point), "slopes": _slopes(one.point)}
        words = _WORDS[one.kind].format(subject=call.kind, **parts)
        remedy = _remedy(call) if severity == "error" else ""
        place = stored if severity == "error" else read
        findings.append(Finding(rule, severity, *place, words, remedy))
    return findings


def describe_zeros(call: Examination, zeros: Sequence[str], proposal: Proposal | None, *, all_zero: bool) -> Finding:
    """Build the finding about inputs by which all derivatives are 0: a warning if no other input was compared either,
    else a hint.
    """
    names = [f"`{name}`" for name in zeros]
    by = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    what = "nothing was tested" if all_zero else f"the gradient by {by} was not tested"
    words = f"every derivative by {by} is 0 at these inputs, where a right gradient and a lost one look the same: "
    words += what
    if proposal and len(proposal.moved) == len(zeros):
        words += "; try other inputs"
    elif proposal:
        words += f"; try other inputs of {', '.join(f'`{name}`' for name in proposal.moved)}"
    place = _places(call, zeros[0])[0]
    return Finding("TS705", "warning" if all_zero else "info", *place, words, proposal.code if proposal else "")


_WORDS = {
    Kind.WRONG: "the {subject}'s gradient is wrong {where}: {numbers}",
    Kind.ALL_DIFFER: "the {subject}'s gradient is wrong {where}, and nobody agrees: {numbers}",
    Kind.ORACLE: "the oracle alone differs {where}: {numbers}; the {subject} may be right",
    Kind.DIFFERENCES: "differences alone differ {where}: {numbers}; the function may change too fast for a step",
    Kind.CONVENTION: "there is no derivative {where}: {slopes}; {numbers}",
    Kind.AT_KINK: "there is no derivative {where}: {slopes}; {numbers}: the {subject} chose as torch does",
}


def _where(compared: InputDerivatives, group: Disagreement) -> str:
    if group.index is None:
        return f"by `{compared.name}`, along a random direction"
    total = compared.op.numel()
    inside = ", ".join(map(str, group.index))
    element = f"`{compared.name}[{inside}]`" if group.index else f"`{compared.name}`"
    if group.count == 1:
        return f"by {element}"
    return f"by {group.count:,} of {total:,} elements of `{compared.name}`, as {element}"


def _numbers(call: Examination, point: Point) -> str:
    said = [f"the {call.kind} says {point.op:.6g}"]
    if point.oracle is not None:
        said.append(f"the oracle {point.oracle:.6g}")
    return ", ".join([*said, f"differences {point.slope.central:.6g}"])


def _slopes(point: Point) -> str:
    slope = point.slope
    return {
        "kink": f"the slopes on its sides are {slope.least:.6g} and {slope.greatest:.6g}",
        "jump": "the slope grows without bound",
        "undefined": "the function has no finite value on one side",
    }.get(slope.kind, "it is not finite")


def _remedy(call: Examination) -> str:
    if call.gradient == "engine":
        return call.engine_remedy
    if call.gradient == "backward":
        return "mend the kernel given as `backward=`, or leave it out"
    return ""


_Place = tuple[str, int, int]


def _places(call: Examination, name: str) -> tuple[_Place, _Place]:
    """Return file, line and column where an input is read, and where a hand-written kernel stores its gradient.

    An error in a hand-written gradient is reported in its kernel. Other gradients have no source of the user's, so both
    places are the first one.
    """
    columns = Columns()
    path, line = _place(call, name)
    read = (path, *columns.element(path, line, name, is_read=True))
    by_hand = call.find_hand_written_store(name)
    if by_hand is None:
        return read, read
    return read, (by_hand[0], *columns.element(*by_hand, f"grad_{name}", is_read=False))


def _place(call: Examination, name: str) -> tuple[str, int]:
    """Return file and line where an input is first read, or the start of the first kernel if that is unknown."""
    try:
        kernels = [lowered.kernel for lowered in call.kernels]
    except NotCovered:
        return call.starts[0]
    for kernel in kernels:
        for stmt in walk.statements(kernel.body):
            if _reads(stmt, name):
                return kernel.path, stmt.line
    return call.starts[0]


def _reads(stmt: nodes.Stmt, name: str) -> bool:
    parts = walk.parts(*walk.expressions(stmt))
    return any(isinstance(part, nodes.Load) and part.array == name for part in parts)


def find_differing_values(
    mine: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor], tolerance: float
) -> tuple[str, str, float, float] | None:
    """Return the first element on which two runs differ: its output, its index, and both values; None if
    there is none.
    """
    for name, one in mine.items():
        left, right = one.detach().double().cpu(), theirs[name].detach().double().cpu()
        apart = ~torch.isclose(left, right, rtol=tolerance, atol=tolerance * find_greatest(left), equal_nan=True)
        if apart.any():
            index = tuple(apart.nonzero()[0].tolist())
            return name, ", ".join(map(str, index)), left[index].item(), right[index].item()
    return None
