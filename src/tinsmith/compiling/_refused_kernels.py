"""Refuses kernels before an engine gets them: those that would end the process, or write to the caller's memory.

The roles of arrays are determined from the source when an op is made. Only the IR, which needs the types of a call,
knows which of several functions a call means, `(f if ti.static(...) else g)(x[i])`, and which arrays a list contains,
`for a in ti.static((x, w))`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._errors import KernelError, refusal, sentence
from ..engines import name_place
from ..frontend import find_breakpoint, find_frexp
from ..ir import REWRITE_LINE, NotCovered, walk
from ..passes import find_deadly
from ._stage import Stage
from ._variant import Variant


def refuse_breakpoints(stage: Stage, op: str) -> None:
    """Raise KernelError if a compiled kernel calls a debugger: the debugger would run once, in the compiler."""
    place = None if stage.engine.runs_source else find_breakpoint(stage.source, stage.home)
    if place is not None:
        words = f"kernel `{stage.name}` of op `{op}` calls a debugger, but {stage.engine.name} compiles the kernel"
        remedy = 'Run it with the Python engine: pass `ts.op(..., engine="python")`, or set TINSMITH_ENGINE=python.'
        raise KernelError(refusal(words, [("at", place)], remedy))


def refuse_deadly_operations(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> None:
    """Raise KernelError for the first operation in a kernel on which the engines end the process.

    If the IR does not cover the kernel, only the operations before the first construct that it lacks are checked.
    """
    try:
        kernel = stage.lower_variant(replace(variant.single, is_serial=False), values).kernel
    except NotCovered as reason:
        if reason.ends_process:
            raise _refuse(stage, op, reason.construct, reason.place, reason.remedy) from None
        place = find_frexp(stage.source, stage.home) if stage.engine.device_type() == "cpu" else None
        if place is not None:
            raise _refuse(
                stage, op, "the function `frexp`", place, "Pass the results of `torch.frexp` as arguments"
            ) from None
        return
    operation = find_deadly(kernel)
    if operation is not None:
        raise _refuse(stage, op, operation.words, name_place(kernel.path, operation.line), operation.remedy)


def _refuse(stage: Stage, op: str, words: str, place: str, remedy: str) -> KernelError:
    headline = f"kernel `{stage.name}` of op `{op}` has {words}, which makes {stage.engine.home.name} end the process"
    return KernelError(refusal(headline, [("at", place)], f"{remedy}."))


def refuse_unseen_writes(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> None:
    """Raise KernelError if a kernel writes to an array that its roles list as only read: that memory is the caller's.

    A kernel that the IR does not cover passes unchecked, unless it uses an input as a whole.
    """
    whole = stage.inputs_used_whole
    quiet = {name for name, one in stage.roles.items() if not (one.is_written or one.escapes)} | whole
    if not quiet:
        return
    try:
        # The search for races has lowered this form already, and all forms store to the same arrays.
        kernel = stage.lower_variant(variant.parallel, values).kernel
    except NotCovered as reason:
        if whole:
            name = min(whole)
            words = f"input `{name}` of op `{op}` is used as a whole, in a way that cannot be analyzed"
            rows = [("at", stage.roles[name].escapes or ""), ("because", f"tinsmith cannot analyze {reason.construct}")]
            remedy = "Index it element by element, or pass it to a function of the engine"
            known = reason.remedy if reason.remedy != REWRITE_LINE else remedy
            raise KernelError(refusal(words, rows, sentence(known))) from None
        return
    name = next((one.array for one in walk.stores(kernel.body) if one.array in quiet), None)
    if name is not None:
        words = f"kernel `{stage.name}` of op `{op}` changes the input `{name}` in a way that its source does not show"
        remedy = f"Write `{name}[...] = ...`, and call functions by their names, so that tinsmith can find the outputs."
        raise KernelError(refusal(words, [("kernel", stage.source.place())], remedy))
