"""Unseen writes: what a kernel stores through functions of which its source alone does not show what they are.

Roles are read off the source, when an op is made. Which of several functions a call means, `(f if ti.static(...) else
g)(x[i])`, only the IR knows, which needs the types of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._errors import KernelError, refusal
from ..source.ir import NotCovered, walk

if TYPE_CHECKING:
    from ._stage import Stage
    from ._variant import Variant


def refuse_unseen_writes(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> None:
    """Raise KernelError where a kernel changes an array that its roles say it leaves alone: the caller's memory.

    A kernel that the IR does not cover is left to its roles.
    """
    quiet = {name for name, one in stage.roles.items() if not (one.is_written or one.escapes)}
    if not quiet:
        return
    try:
        kernel = stage.lower_variant(variant, values).kernel
    except NotCovered:
        return
    name = next((one.array for one in walk.stores(kernel.body) if one.array in quiet), None)
    if name is not None:
        words = f"kernel `{stage.name}` of op `{op}` changes `{name}` through a function that its source does not name"
        remedy = f"Call the function by its name, or assign to `{name}[...]` what it returns."
        raise KernelError(refusal(words, [("kernel", stage.source.place(stage.source.tree))], remedy))
