"""Unseen writes: refuses stores to arrays that only the IR of a kernel shows.

Roles are read off the source, when an op is made. Which of several functions a call means, `(f if ti.static(...) else
g)(x[i])`, and which array stands in a list, `for a in ti.static((x, w))`, only the IR knows, which needs the types of a
call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._errors import KernelError, refusal
from ..ir import NotCovered, walk
from ._stage import Stage
from ._variant import Variant


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
