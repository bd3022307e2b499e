"""Checks of an op's kernels when the op is made, for errors that are certain in every call.

A call's dtypes and ranks are not known yet. Those of the annotations and of the spec are used, and floats if neither
says anything. A kernel that cannot be lowered for these, or whose engine is not started, is checked by its first
call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .. import linter
from .._errors import KernelError, TinsmithError, refusal
from ..analyses import stays_inside
from ..calls import Signature, default_float
from ..compiling import ArrayType, Stage, Variant, check_races, make_finding, remember
from ..engines import HALVES, SPEC_DTYPES, name_place, of_kernel
from ..ir import NotCovered

_RACES = ("TS105", "TS106")


def check_early(signature: Signature, kernels: Sequence[Any], *, checks_bounds: bool) -> None:
    """Raise KernelError for a certain race in an op's kernels, and for an index that is out of range in every call.

    Warn of possible races. With `checks_bounds`, indices are left to the call, which reports their values.
    """
    race_free = {stage.source.function for stage in signature.firsts if stage.allows_races}
    inside, leaving = set[Any](), set[Any]()
    for stage, variant in _assume_variants(signature):
        race_free.add(stage.source.function)
        check_races(stage, variant, {}, f"op `{signature.op}`")
        (inside if _stays_inside(stage, variant) else leaving).add(stage.source.function)
    # If a kernel was lowered, its IR is more precise about races and indices than its text. Lint is imported only for
    # the other kernels.
    unread = [kernel for kernel in kernels if of_kernel(kernel).function_of(kernel) not in race_free]
    others = [kernel for kernel in kernels if of_kernel(kernel).function_of(kernel) not in inside - leaving]
    if not checks_bounds and others:
        _refuse(signature, "uses an index that is out of range in every call", others, linter.OUTSIDE)
    if unread:
        _refuse(signature, "has a data race", unread, linter.RACES)


def _stays_inside(stage: Stage, variant: Variant) -> bool:
    """Return True if no index of a kernel certainly leaves its array, read from disk or found."""
    kernel = stage.lower_variant(variant, {}).kernel
    return remember(stage.engine, "stays inside", lambda: (kernel,), lambda: stays_inside(kernel))


def _refuse(signature: Signature, what: str, kernels: Sequence[Any], rule: Callable[..., Any]) -> None:
    """Raise KernelError for the first error that a lint rule finds in the kernels.

    `what` is the predicate of the message.
    """
    for finding in linter.find_certain_mistakes(kernels, signature.spec, rule):
        rows = [("at", name_place(finding.path, finding.line)), ("because", finding.message)]
        remedy = f"Write `{finding.remedy}`." if finding.remedy else "Keep the index inside the array."
        raise KernelError(refusal(f"op `{signature.op}` {what}", rows, remedy))


def replace_races(signature: Signature, findings: Sequence[linter.Finding]) -> list[linter.Finding]:
    """Return lint's findings with the races found in the text replaced by those found in the kernels' IR."""
    kept = [*findings]
    for stage, variant in _assume_variants(signature):
        kernel = stage.lower_variant(variant, {}).kernel
        mine = [make_finding(one, kernel, stage) for one in stage.find_conflicts(variant, {})]
        of_text = [one for one in kept if one.rule in _RACES and _contains(stage, one)]
        at = {(one.rule, one.line): one for one in of_text}
        kept = [one for one in kept if one not in of_text]
        kept += linter.drop_suppressed([at.get((one.rule, one.line), one) for one in mine])
    return kept


def _contains(stage: Stage, finding: linter.Finding) -> bool:
    """Return True if a finding is on a line of the stage's kernel."""
    tree = stage.source.tree
    return finding.path == stage.source.path and tree.lineno <= finding.line <= (tree.end_lineno or tree.lineno)


def _assume_variants(signature: Signature) -> Iterator[tuple[Stage, Variant]]:
    """Yield each kernel that can be lowered now, with the dtypes and ranks that it will probably be compiled for."""
    for stage in signature.firsts:
        variant = _assume_variant(signature, stage)
        if variant is None or stage.allows_races:
            continue
        try:
            stage.find_conflicts(variant, {})
        except (NotCovered, TinsmithError):
            continue
        yield stage, variant


def _assume_variant(signature: Signature, stage: Stage) -> Variant | None:
    is_open = bool(stage.open_templates) or (stage.is_method and stage.owner is None)
    if is_open or stage.engine.runtime() is None or stage.uses_blocks:
        return None
    arrays: list[tuple[str, ArrayType]] = []
    for name in stage.arrays:
        item, parameter = signature.items.get(name), stage.parameters[name]
        rank = parameter.ndim if item is None or item.has_rest else len(item.sizes) - len(parameter.element)
        if item is None or rank is None or rank < 0 or parameter.open_dims:
            return None
        arrays.append((name, ArrayType(_assume_dtype(signature, stage, name), rank, parameter.element)))
    try:
        fingerprint = stage.baked_values.fingerprint({})
    except TinsmithError:
        return None
    return Variant(tuple(arrays), fingerprint=fingerprint)


def _assume_dtype(signature: Signature, stage: Stage, name: str) -> torch.dtype:
    item, dtypes = signature.items[name], stage.parameters[name].dtypes
    only = SPEC_DTYPES[item.dtype] if item.dtype else dtypes[0] if dtypes is not None and len(dtypes) == 1 else None
    if only is not None:
        # Half precision is computed in single.
        return torch.float32 if only in HALVES else only
    return torch.int32 if item.promise else default_float(signature)
