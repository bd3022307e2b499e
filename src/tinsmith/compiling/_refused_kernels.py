"""Kernels that are refused before an engine gets them: those that would end the process, or change what is not theirs.

Roles of arrays are read off the source, when an op is made. Which of several functions a call means, `(f if
ti.static(...) else g)(x[i])`, and which array stands in a list, `for a in ti.static((x, w))`, only the IR knows, which
needs the types of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._errors import KernelError, refusal
from ..frontend import find_breakpoint, find_frexp
from ..ir import NotCovered, walk
from ..passes import find_deadly
from ._stage import Stage
from ._variant import Variant


def refuse_breakpoints(stage: Stage, op: str) -> None:
    """Raise KernelError if a kernel that an engine compiles calls a debugger: it would run once, in the compiler."""
    place = None if stage.engine.runs_source else find_breakpoint(stage.source, stage.home)
    if place is not None:
        words = f"kernel `{stage.name}` of op `{op}` calls a debugger, and {stage.engine.name} compiles it"
        remedy = 'Let Python run it: `ts.op(..., engine="python")`, or set TINSMITH_ENGINE=python.'
        raise KernelError(refusal(words, [("at", place)], remedy))


def refuse_deadly_operations(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> None:
    """Raise KernelError for the first operation that the engines end the process on.

    Of a kernel that the IR does not cover, what comes after the first thing that it lacks is not looked at.
    """
    try:
        kernel = stage.lower_variant(replace(variant.single, is_serial=False), values).kernel
    except NotCovered as reason:
        if reason.ends_process:
            raise _refuse(stage, op, reason.construct, reason.place, reason.remedy) from None
        place = find_frexp(stage.source, stage.home) if stage.engine.device_type() == "cpu" else None
        if place is not None:
            raise _refuse(stage, op, "the function `frexp`", place, "Pass the results of `torch.frexp`") from None
        return
    operation = find_deadly(kernel)
    if operation is not None:
        raise _refuse(stage, op, operation.words, f"{kernel.path}:{operation.line}", operation.remedy)


def _refuse(stage: Stage, op: str, words: str, place: str, remedy: str) -> KernelError:
    headline = f"kernel `{stage.name}` of op `{op}` has {words}, on which {stage.engine.home.name} ends the process"
    return KernelError(refusal(headline, [("at", place)], f"{remedy}."))


def refuse_unseen_writes(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> None:
    """Raise KernelError where a kernel changes an array that its roles say it leaves alone: the caller's memory.

    A kernel that the IR does not cover is left to its roles, unless it uses an input as a whole.
    """
    whole = stage.inputs_used_whole
    quiet = {name for name, one in stage.roles.items() if not (one.is_written or one.escapes)} | whole
    if not quiet:
        return
    try:
        kernel = stage.lower_variant(variant, values).kernel
    except NotCovered as reason:
        if whole:
            name = min(whole)
            words = f"input `{name}` of op `{op}` is used as a whole, in a way that cannot be analysed"
            rows = [("at", stage.roles[name].escapes or ""), ("because", f"tinsmith cannot follow {reason.construct}")]
            remedy = "Index it element by element, or hand it to a function of the engine."
            raise KernelError(refusal(words, rows, remedy)) from None
        return
    name = next((one.array for one in walk.stores(kernel.body) if one.array in quiet), None)
    if name is not None:
        words = f"kernel `{stage.name}` of op `{op}` changes `{name}`, and its source alone does not show it"
        remedy = f"Write `{name}[...] = ...`, and call functions by their names, so that it is seen what is an output."
        raise KernelError(refusal(words, [("kernel", stage.source.place())], remedy))
