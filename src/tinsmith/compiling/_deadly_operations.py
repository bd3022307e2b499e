"""Refuses kernels on which an engine would end the process, before it is given them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._errors import KernelError, refusal
from ..frontend import find_breakpoint, find_frexp
from ..ir import NotCovered
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
