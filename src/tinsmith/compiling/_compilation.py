"""Compilation: compiles a variant of a kernel, from the user's own source or from its IR.

The stage keeps the compiled variants. `ensure_compiled` is the only entry: it checks the kernel first.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .. import compiling
from .._cache import digest_of
from .._errors import GradientError, KernelError, TinsmithError, refusal
from ..codegen import build
from ..engines import COMPILING, Compiled, CompileOptions
from ..frontend import multiplies_atomically, prints, runs_in_blocks
from ..ir import NotCovered, nodes
from ._from_ir import (
    BATCH_REWRITING,
    PRODUCTS_REWRITING,
    build_misread_error,
    compile_for_device,
    compile_moved,
    compile_rewritten,
    find_misreading,
    fit_to_device,
    has_field_elements_at_top,
)
from ._ir_checks import check_races, warn_of_truncations
from ._kernel_families import has_relatives
from ._refused_kernels import refuse_breakpoints, refuse_deadly_operations, refuse_unseen_writes
from ._stage import Stage
from ._variant import Alignment, Variant


def ensure_compiled(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> Compiled:
    """Return the compiled form of a variant. If there is none, check the kernel and compile it.

    Raises KernelError or GradientError with the engine's own message.
    """
    # A stage that repeats an earlier kernel uses the compiled variants of that one.
    stage = stage.first
    compiled = stage.find_compiled(variant)
    if compiled is not None:
        return compiled
    with COMPILING:
        compiled = stage.find_compiled(variant)
        if compiled is not None:
            return compiled
        stage.engine.require_ready(op)
        stage.baked_values.check_fields(op)
        stage.baked_values.refuse_ndarrays(values, op)
        stage.check_values(variant, values, op)
        if not variant.adjoint:
            refuse_breakpoints(stage, op)
            refuse_deadly_operations(stage, variant, values, op)
            refuse_unseen_writes(stage, variant, values, op)
            check_races(stage, variant, values, f"op `{op}`")
        compiled = stage.compiled.keep(variant, _compile_variant(stage, variant, values, op))
        if variant.alignment is not Alignment.NONE and not compiled.vector_sizes:
            # It does not depend on alignment, so it is that of any memory.
            for alignment in Alignment:
                stage.compiled.keep(replace(variant, alignment=alignment), compiled)
            text = stage.texts.pop(variant, None)
            if text is not None:
                stage.texts.keep(replace(variant, alignment=Alignment.NONE), text)
        if not variant.adjoint:
            warn_of_truncations(stage, variant, values, op)
    return compiled


def _compile_variant(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> Compiled:
    """Compile a variant. Raise KernelError or GradientError with the engine's own message."""
    _check_blocks(stage, op)
    if stage.engine.runs_source:
        return compiling.compile_for_python(stage, variant, values)
    by_ir = _find_ir_compiler(stage, variant, values, op)
    if by_ir is None:
        return _compile_source(stage, variant, values, op)
    try:
        return by_ir(stage, variant, values, op)
    except KernelError as error:
        if by_ir is not compile_for_device:
            raise
        refused = error
    refused.is_internal = True
    # If the original kernel does not compile either, this raises an error with the user's own lines. It is
    # outside the handler because Quadrants also quotes the error that is being handled.
    _compile_source(stage, variant, values, op)
    raise refused


def is_compiled_from_ir(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> bool:
    """Return True if the engine compiles text printed from the variant's IR instead of the user's own source."""
    return not stage.engine.runs_source and _find_ir_compiler(stage, variant, values, op) is not None


def _check_blocks(stage: Stage, op: str) -> None:
    """Raise KernelError if a kernel needs blocks of threads and its device lacks them. Taichi would end the process on
    some.
    """
    where = runs_in_blocks(stage.source, stage.home) if stage.uses_blocks else None
    if where is not None and (stage.engine.device_type() == "cpu" or not stage.runs_as_written):
        words = (
            f"kernel `{stage.name}` of op `{op}` uses blocks of threads, which "
            f"{stage.engine.name} does not support here"
        )
        remedy = (
            "Start the engine of this kernel on a GPU; or leave out `backward=`, and "
            "the gradient is generated from the "
            "op's kernel."
        )
        raise KernelError(refusal(words, [("at", where)], remedy))


def _find_ir_compiler(
    stage: Stage, variant: Variant, values: Mapping[str, Any], op: str
) -> Callable[[Stage, Variant, Mapping[str, Any], str], Compiled] | None:
    """Return the function that compiles a variant from its IR, or None if the engine gets the user's own source."""
    if stage.is_checked and not variant.adjoint:
        return compiling.compile_guarded
    if stage.uses_blocks and stage.runs_as_written:
        # A GPU has blocks; elsewhere `derived.BlockedCore` launches kernels that are generated from the IR.
        return None
    is_moved = stage.engine is not stage.home
    misreading = find_misreading(stage, variant, values) if variant.adjoint or not is_moved else None
    if variant.adjoint and misreading is not None:
        raise build_misread_error(stage, op, misreading)
    if is_moved:
        return compile_moved
    rewriting = misreading
    if variant.batched_arrays:
        rewriting = BATCH_REWRITING
    elif not variant.adjoint and multiplies_atomically(stage.source, stage.home):
        rewriting = PRODUCTS_REWRITING
    if rewriting is not None:
        return functools.partial(compile_rewritten, rewriting=rewriting)
    if variant.adjoint or prints(stage.source, stage.home):
        return None
    is_printed = _has_device_form(stage, variant, values) or _has_relatives(stage, variant, values)
    return compile_for_device if is_printed else None


def _has_relatives(stage: Stage, variant: Variant, values: Mapping[str, Any]) -> bool:
    """Return True if the kernel must share a compiled kernel, since many that differ from it in numbers alone were
    compiled.
    """
    if variant.is_simd:
        return False
    try:
        kernel, fields = stage.lower_variant(variant, values)
    except NotCovered:
        return False
    return not (fields or has_field_elements_at_top(kernel)) and has_relatives(stage.engine, kernel)


def _has_device_form(stage: Stage, variant: Variant, values: Mapping[str, Any]) -> bool:
    """Return True if the kernel has another form for its device than the one that was written (`fit_to_device`).

    Return False if the IR does not cover the kernel, or cannot be compiled: then the engine compiles the kernel as it
    is. So it does on a GPU if the kernel says how large its blocks are, since its author tuned it.
    """
    if variant.is_simd:
        return False
    try:
        kernel = stage.lower_variant(variant, values).kernel
    except NotCovered:
        return False
    if stage.engine.device_type() != "cpu" and any(
        isinstance(one, nodes.For) and one.block_size for one in kernel.body
    ):
        return False
    return (
        not has_field_elements_at_top(kernel)
        and fit_to_device(kernel, stage.engine, variant.find_aligned(kernel)) is not kernel
    )


def _compile_source(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> Compiled:
    function, text = _build_function(stage, variant)
    path = function.__code__.co_filename
    try:
        rewritten = stage.rewrite_source(variant)
        with compiling.place_warnings(rewritten, text, path, stage.given_warnings):
            options = CompileOptions(
                variant.adjoint, variant.stack, stage.is_careful(variant), stage.is_aliased(variant), variant.is_simd
            )
            content = _find_content(stage, variant, values)
            return stage.engine.compile(function, stage.templates(values), options, content)
    except TinsmithError:
        raise
    except Exception as cause:
        raise _refusal(stage, variant, values, cause, op, text) from cause


def _find_content(stage: Stage, variant: Variant, values: Mapping[str, Any]) -> str | None:
    """Return a digest of everything that the kernel's text refers to; None if that is unknown or contains fields."""
    try:
        kernel, fields = stage.lower_variant(replace(variant, adjoint=False, stack=0), values)
    except NotCovered:
        return None
    return None if fields else digest_of(repr(kernel))


def _build_function(stage: Stage, variant: Variant) -> tuple[Callable[..., Any], str]:
    """Build the Python function that the engine compiles; return it with its text."""
    # An engine's warnings show this label.
    label = f"{stage.name} of {os.path.basename(stage.source.path)}"
    source = stage.rewrite_source(variant)
    function, text = build(source.tree, source.namespace() | {"_lang": stage.engine.lang}, label)
    return function, stage.texts.keep(variant, text)


def _find_misfits(
    stage: Stage, variant: Variant, values: Mapping[str, Any], cause: Exception
) -> list[compiling.Misfit]:
    """Return the mistakes in the kernel's source that may explain an engine's error better than the engine's message
    does.
    """
    candidates = (
        compiling.describe_mismatched_loop(stage.source, {name: array.rank for name, array in variant.arrays}),
        compiling.find_sliced_array(cause, stage.baked_values.sources, stage.source, stage.arrays),
        compiling.describe_outside_tensor(stage.baked_values.list_tensors(values), is_op=not stage.may_write_fields),
    )
    return [one for one in candidates if one is not None]


def _refusal(
    stage: Stage, variant: Variant, values: Mapping[str, Any], cause: Exception, op: str, text: str
) -> TinsmithError:
    place = stage.source.place()
    places = compiling.describe_frames(cause, stage.rewrite_source(variant), text)
    kernel = ("kernel", f"{stage.name} at {place}")
    rows = [*places, (stage.engine.name, compiling.find_error_line(cause))]
    if not variant.adjoint:
        misfits = _find_misfits(stage, variant, values, cause)
        remedies = [one.remedy for one in misfits] or compiling.find_known_remedies(cause, stage.module_name)
        words = f"the kernel of op `{op}` does not compile"
        remedy = " ".join([*remedies, compiling.WHERE_THE_REPORT_IS])
        return KernelError(refusal(words, [kernel, *(one.row for one in misfits), *rows], remedy))
    return GradientError(
        refusal(
            f"{stage.engine.name} cannot differentiate the kernel of op `{op}`",
            [kernel, *rows],
            compiling.describe_reverse_remedy(stage.engine, is_op=not stage.may_write_fields),
        )
    )
