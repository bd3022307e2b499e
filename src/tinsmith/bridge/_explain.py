"""What an op says of itself: arrays and their uses, gradients, what is saved, compiled variants."""

from __future__ import annotations

from collections.abc import Iterable

from .._errors import GradientError
from ._core import Core
from ._stage import ArrayType, Stage, Variant


def explain(core: Core) -> str:
    """A readable account of an op, in plain text."""
    signature = core.signature
    lines = [f"op `{signature.op}`: {signature.spec}"]
    if signature.spec.scratch_text:
        lines.append(f"  scratch: {signature.spec.scratch_text}")
    for stage in signature.stages:
        lines += ["", *_kernel(stage)]
    lines += ["", *_gradient(core), "", *_batches(core)]
    texts = [(variant, text) for stage in signature.stages for variant, text in stage.texts.items()]
    lines += ["", f"compiled variants: {len(texts)}"]
    for variant, text in texts:
        lines += ["", f"  # {_variant(variant)}", *(f"  {line}" for line in text.rstrip().splitlines())]
    return "\n".join(lines)


def _kernel(stage: Stage) -> Iterable[str]:
    moved = "" if stage.engine is stage.home else f" (written for {stage.home.name})"
    yield f"kernel `{stage.name}` at {stage.source.place(stage.source.tree)}, on {stage.engine.name}{moved}"
    for name in stage.arrays:
        kinds = list(dict.fromkeys(access.kind for access in stage.roles[name].accesses))
        yield f"  {name}: {', '.join(kinds) or 'shape only'}"


def _gradient(core: Core) -> Iterable[str]:
    source = {"engine": "the engine's reverse mode", "backward": "a hand-written kernel"}[core.reverse.name]
    yield f"gradient: {source}"
    active = frozenset(core.signature.arrays)
    try:
        core.reverse.check(active)
    except GradientError as refusal:
        yield f"  refused: {refusal}"
        return
    read = sorted(core.reverse.reads(active))
    yield f"  saved for the backward pass: {', '.join(read) or 'nothing'}"


def _batches(core: Core) -> Iterable[str]:
    """Whether `vmap` and `*b` take one launch, asked of a variant in which every array is batched."""
    for stage in core.signature.stages:
        reason = stage.batch_refusal(_all_batched(core, stage))
        yield f"batches of `{stage.name}`: " + (f"one launch a sample ({reason})" if reason else "one launch")


def _all_batched(core: Core, stage: Stage) -> Variant:
    import torch

    items = core.signature.items
    arrays = []
    for name in stage.arrays:
        element = stage.parameters[name].element
        rank = len(items[name].dims) - (items[name].batch_name is not None) - len(element)
        arrays.append((name, ArrayType(torch.float32, rank, element, is_batched=True)))
    return Variant(tuple(arrays))


def _variant(variant: Variant) -> str:
    arrays = ", ".join(
        f"{name}: {str(array.dtype).removeprefix('torch.')}" + (" batched" if array.is_batched else "")
        for name, array in variant.arrays
    )
    words = ["reverse" if variant.adjoint else "forward", *(["serial"] if variant.is_serial else [])]
    return f"{' '.join(words)} ({arrays})"
