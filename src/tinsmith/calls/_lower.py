"""Lowering: converts an op's kernels to IR, or raises an error with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._errors import KernelError, refusal
from ..compiling import Stage
from ..frontend.lowering import LoweredKernel
from ..ir import Names, NotCovered
from ..passes import rename_arrays
from ._key import CallKey


def lower_stages(key: CallKey) -> list[LoweredKernel]:
    """The kernels of an op as IR, in order. Raises NotCovered."""
    stages = key.signature.stages
    pairs = zip(stages, key.variants, strict=True)
    kernels = [stage.lower_variant(variant, key.templates) for stage, variant in pairs]
    return _with_memory_apart(key, [stage.first for stage in stages], kernels)


def _with_memory_apart(key: CallKey, stages: Sequence[Stage], kernels: list[LoweredKernel]) -> list[LoweredKernel]:
    """Kernels of which no two have memory of blocks by one name: arrays of one name are one array.

    `stages` are those that they come from; launches of one have its memory.
    """
    if not any(kernel.block_memory for kernel, _ in kernels):
        return kernels
    taken = {*key.signature.order, *key.signature.items}
    taken |= {name for kernel, _ in kernels for name in kernel.arrays if name not in kernel.block_memory}
    names, moved = Names(taken), dict[Stage, dict[str, str]]()
    for stage, (kernel, _) in zip(stages, kernels, strict=True):
        if stage not in moved:
            moved[stage] = {name: names.fresh(name) for name in kernel.block_memory}
    return [
        LoweredKernel(rename_arrays(one, moved[stage]), fields)
        for stage, (one, fields) in zip(stages, kernels, strict=True)
    ]


@dataclass(frozen=True)
class KernelLaunches:
    """An op's kernels as IR, each once, and for each launch the number of its kernel."""

    kernels: Sequence[LoweredKernel]
    launches: Sequence[int]


def lower_launches(key: CallKey) -> KernelLaunches:
    """The kernels of an op, each lowered once: arguments are named as in its first launch. Raises NotCovered."""
    stages = key.signature.stages
    places = {stage: place for place, stage in enumerate(key.signature.firsts)}
    variants = {stage: variant for stage, variant in zip(stages, key.variants, strict=True) if stage is stage.first}
    kernels = [stage.lower_variant(variants[stage], key.templates) for stage in places]
    return KernelLaunches(_with_memory_apart(key, [*places], kernels), [places[stage.first] for stage in stages])


def require_lowered(key: CallKey) -> list[LoweredKernel]:
    """The same for callers that need the IR.

    Raises:
        KernelError: a kernel uses what the front end does not know.
    """
    try:
        return lower_stages(key)
    except NotCovered as reason:
        raise KernelError(
            refusal(
                f"op `{key.signature.op}` uses a construct that tinsmith cannot analyse",
                [("construct", reason.construct), ("at", reason.place)],
                "Rewrite that line. The op itself runs, with the engine's own gradient or a `backward=`.",
            )
        ) from None
