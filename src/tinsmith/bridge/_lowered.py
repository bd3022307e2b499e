"""Lowered: an op's kernels as IR, or a refusal in words."""

from __future__ import annotations

from .._errors import KernelError, refusal
from ..source.ir import Lowered, NotCovered
from ._case import Case
from ._stage import Stage


def lowered(case: Case) -> list[Lowered]:
    """The kernels of an op as IR, in order.

    Raises:
        KernelError: a kernel uses what the front end does not know.
    """
    found = []
    for stage, variant in zip(case.signature.stages, case.variants, strict=True):
        try:
            found.append(stage.lowered(variant, case.templates))
        except NotCovered as reason:
            raise _not_covered(case.signature.op, stage, reason) from None
    return found


def _not_covered(op: str, stage: Stage, reason: NotCovered) -> KernelError:
    return KernelError(
        refusal(
            f"kernel `{stage.name}` of op `{op}` uses what tinsmith cannot follow",
            [("construct", reason.construct), ("at", reason.place)],
            "Write that line in other words. The op itself runs, with the engine's own gradient or a `backward=`.",
        )
    )
