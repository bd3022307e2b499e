"""Lowered: an op's kernels as IR, or a refusal in words."""

from __future__ import annotations

from .._errors import KernelError, refusal
from ..source.ir import Lowered, NotCovered
from ._case import Case


def lowered(case: Case) -> list[Lowered]:
    """The kernels of an op as IR, in order. Raises NotCovered."""
    pairs = zip(case.signature.stages, case.variants, strict=True)
    return [stage.lowered(variant, case.templates) for stage, variant in pairs]


def followed(case: Case) -> list[Lowered]:
    """The same for who cannot do without.

    Raises:
        KernelError: a kernel uses what the front end does not know.
    """
    try:
        return lowered(case)
    except NotCovered as reason:
        raise KernelError(
            refusal(
                f"op `{case.signature.op}` uses what tinsmith cannot follow",
                [("construct", reason.construct), ("at", reason.place)],
                "Write that line in other words. The op itself runs, with the engine's own gradient or a `backward=`.",
            )
        ) from None
