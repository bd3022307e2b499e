"""Checks of what a kernel's IR shows, before an engine gets it: data races, and floats truncated to integers.

A kernel whose parallel iterations certainly race is refused, and one that may race gets a warning. On the CPU, a loop
that may race runs in order, both in the forward pass and for the gradient, so that the gradient is that of the computed
values. `analyses` decides what is a race.

`s = 0` makes `s` an integer for good, and `s += x[i]` then adds truncated numbers, without a gradient. Engines warn of
some such assignments in their log, but not of `s = s * x[i]`. The types are those of a call, so lint alone cannot find
these assignments.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from .. import analyses, linter
from .._errors import KernelError, refusal
from .._user_warnings import RaceWarning, TruncationWarning
from ..analyses import Conflict, Verdict
from ..engines import name_place
from ..ir import NotCovered, Type, nodes, types, walk
from ._stage import Stage
from ._variant import Variant

_DID = {"Load": "read", "Store": "stored"}
_GIVEN: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()
"""The lines of loops for which a warning was given, by the kernel's function: many ops and layers may be made of one
kernel.
"""
_WHOLE = frozenset({"ceil", "floor", "round"})
"""Functions of floats whose results have no fraction."""


def check_races(stage: Stage, variant: Variant, values: Mapping[str, Any], owner: str) -> None:
    """Raise KernelError for a certain race of a kernel; warn of a possible one, once for each loop.

    Nothing is known of a kernel that the IR does not cover.

    Args:
        stage: the kernel.
        variant: what it is compiled for.
        values: template arguments by name.
        owner: the op or layer, for the message.
    """
    try:
        conflicts = stage.find_conflicts(variant, values)
    except NotCovered:
        return
    for conflict in conflicts:
        kernel = stage.lower_variant(variant.parallel, values).kernel
        finding = make_finding(conflict, kernel, stage)
        if not linter.drop_suppressed([finding]):
            continue
        if conflict.verdict is Verdict.CERTAIN:
            raise KernelError(_describe(f"{owner} has a data race", conflict, kernel, stage))
        given = _GIVEN.setdefault(stage.source.function, set())
        if conflict.loop.line not in given:
            given.add(conflict.loop.line)
            words = _describe(f"{owner} may have a data race", conflict, kernel, stage)
            warnings.warn_explicit(words, RaceWarning, finding.path, finding.line)


def make_finding(conflict: Conflict, kernel: nodes.Kernel, stage: Stage) -> linter.Finding:
    """Convert a conflict to a finding of lint."""
    is_certain = conflict.verdict is Verdict.CERTAIN
    message = analyses.describe_conflict(conflict, kernel)
    rule = "TS106" if conflict.is_of_neighbors else "TS105"
    remedy = f"{stage.module_name}.loop_config(serialize=True)  # before the loop; or use one atomic operation"
    return linter.Finding(
        rule, "error" if is_certain else "warning", kernel.path, conflict.change.line, 0, message, remedy
    )


def describe_accesses(conflict: Conflict, kernel: nodes.Kernel) -> list[tuple[str, str]]:
    """Return a row of a message for each of the two accesses of a conflict."""
    rows = []
    for one in (conflict.change, conflict.other):
        verb = (
            f"changed by atomic_{one.of.operator}" if isinstance(one.of, nodes.Atomic) else _DID[type(one.of).__name__]
        )
        rows.append((verb, f"`{analyses.describe_access(one, kernel)}` in line {one.line}"))
    return rows


def _describe(title: str, conflict: Conflict, kernel: nodes.Kernel, stage: Stage) -> str:
    verb, text = describe_accesses(conflict, kernel)[1]
    certainly = conflict.verdict is Verdict.CERTAIN
    rows = [
        describe_accesses(conflict, kernel)[0],
        (verb, f"{text}, by another iteration, {_SAME[conflict.verdict]}"),
        ("loop", name_place(kernel.path, conflict.loop.line)),
    ]
    if not certainly:
        is_cpu = stage.engine.device_type() == "cpu"
        rows.append(("so", _IN_ORDER if is_cpu else _AT_ONCE))
    return refusal(title, rows, _remedy(conflict, kernel, stage))


_SAME = {
    Verdict.CERTAIN: "for the same element",
    Verdict.POSSIBLE: "for the same element, depending on the data",
    Verdict.CONDITIONAL: "for the same element, for some sizes or arguments",
}
_IN_ORDER = "the loop runs in order, on one thread, and so does its gradient"
_AT_ONCE = "results may differ from run to run, and there is no gradient"


def _remedy(conflict: Conflict, kernel: nodes.Kernel, stage: Stage) -> str:
    module, element = stage.module_name, analyses.describe_access(conflict.change, kernel)
    return (
        f"Put `{module}.loop_config(serialize=True)` above the loop, so that its iterations run in order; or change "
        f"the element by one atomic operation, `{element} += ...` or `{module}.atomic_max({element}, ...)`; or, if "
        "the indices from an array are all different, promise it in the spec: `unique k[n]`. "
        '`races="allow"` turns this check off.'
    )


# Truncations ------------------------------------------------------------------------------------


@functools.cache
def _get_cuts() -> linter.Cuts:
    """Return the finder of statements that truncate floats. It loads lint, so it is made for the first kernel that has
    one.
    """
    return linter.Cuts()


def warn_of_truncations(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> None:
    """Warn once of each line at which a kernel truncates a float to an integer.

    A kernel that the IR does not cover gets no warning, except in the engine's log.
    """
    try:
        kernel = stage.lower_variant(variant, values).kernel
    except NotCovered:
        return
    for line in sorted(set(_find_cut_lines(kernel))):
        cut = _get_cuts().at(kernel.path, line)
        if cut is None or ("TS301", kernel.path, cut.line) in stage.given_warnings:
            continue
        stage.given_warnings.add(("TS301", kernel.path, cut.line))
        if linter.drop_suppressed([linter.Finding("TS301", "warning", kernel.path, cut.line, cut.column, "")]):
            words = (
                f"`{cut.target}` holds integers in op `{op}`: the float assigned to it "
                "is truncated, and has no gradient"
            )
            remedy = (
                "Initialize it with a float, `0.0`, or make it an array of floats; write "
                "`int(...)` if truncation is intended."
            )
            warnings.warn_explicit(refusal(words, remedy=remedy), TruncationWarning, kernel.path, cut.line)


def _find_cut_lines(kernel: nodes.Kernel) -> Iterator[int]:
    """Yield the lines of statements that convert a float to an integer, with a cast or without."""
    for one in walk.statements(kernel.body):
        match one:
            case nodes.Assign():
                wanted = kernel.locals[one.name]
            case nodes.Store() | nodes.Atomic():
                wanted = kernel.arrays[one.array].type
            case _:
                continue
        if wanted == Type.U1 or types.is_float(wanted):
            continue
        if _may_have_fraction(one.value) or any(
            isinstance(part, nodes.Cast) and not part.keeps_bits and _may_have_fraction(part.value)
            for part in walk.parts(one.value)
            if not types.is_float(part.type) and part.type != Type.U1
        ):
            yield one.line


def _may_have_fraction(value: nodes.Expr) -> bool:
    """Return True if a value is a float that may have a fraction.

    Rounded values, converted integers and constants without a fraction have none.
    """
    match value:
        case nodes.Const():
            return isinstance(value.value, float) and value.value % 1 != 0
        case nodes.Unary(operator=operator) if operator in _WHOLE:
            return False
        case nodes.Cast() if not types.is_float(value.value.type):
            return False
    return types.is_float(value.type)
