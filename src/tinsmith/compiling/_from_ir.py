"""Compiles a user's kernel from its IR instead of its source: with functions inlined and statements added."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from .. import compiling, passes
from .._errors import GradientError, KernelError, TinsmithError, refusal, sentence
from ..codegen import build_printed, print_kernel, unparse
from ..engines import DTYPES, Compiled, CompileOptions, Engine, Language, array_text
from ..frontend.lowering import LoweredKernel
from ..ir import NotCovered, nodes, types
from ..kernels import ARITHMETIC, VECTOR_ARITHMETIC, VECTOR_WIDTHS
from ..passes import ENGINE, GENERATED, PIPELINES, PassOptions, has_elements_at_top, has_vector_loops, run_pipeline
from ._kernel_families import annotate_numbers, compile_in_family
from ._remember import remember
from ._stage import Stage
from ._variant import Variant


def lower_for(stage: Stage, variant: Variant, values: Mapping[str, Any], what: str, remedy: str) -> LoweredKernel:
    """Lower a kernel to IR. Raise KernelError if the IR does not cover the kernel.

    `what` begins the message with the purpose ("op `f` cannot check its bounds"), and `remedy` is an alternative for
    the user.
    """
    try:
        return stage.lower_variant(variant, values)
    except NotCovered as reason:
        words = f"{what}: tinsmith cannot analyze {reason.construct}"
        hint = f"{reason.remedy}, or {remedy}."
        raise KernelError(refusal(words, [("at", reason.place)], hint)) from None


def compile_ir(
    stage: Stage,
    variant: Variant,
    kernel: nodes.Kernel,
    fields: Mapping[str, Any],
    words: str,
    remedy: str,
    *,
    is_same: bool = False,
) -> Compiled:
    """Compile a kernel's IR. Raise KernelError with `words` if the engine does not compile it.

    Set `is_same` if the kernel has the reads and writes of the user's own; otherwise it is taken to have added
    statements.

    A kernel that uses entries of vectors outside of loops is compiled on arrays of numbers: printed entry by entry, it
    would make engines end the process.
    """
    arrays = dict(variant.arrays)
    if has_field_elements_at_top(kernel):
        hint = f"Put its statements into a loop, `for _ in range(1):`. {remedy}"
        raise KernelError(refusal(words, [("because", "it uses entries of a field of vectors outside of loops")], hint))
    is_flat = has_elements_at_top(kernel)
    # A batched kernel does what the user's does; what else is printed from IR may have got statements of ours.
    is_users = is_same or bool(variant.batched_arrays)
    is_careful, is_aliased = (stage.is_careful(variant), stage.is_aliased(variant)) if is_users else (True, True)
    kernel = to_engine_form(stage, variant, kernel)
    if is_flat:
        arrays = {name: one._replace(rank=one.rank + len(one.element), element=()) for name, one in arrays.items()}
    given = {name for name, array in kernel.arrays.items() if not array.label} | {*kernel.arguments}
    texts = {name: text for name, text in stage.annotations(arrays).items() if name in given}
    texts |= dict.fromkeys(fields, "_lang.template()") | annotate_added(kernel, is_checked=stage.is_checked)
    is_simd = has_vector_loops(kernel)
    options = CompileOptions(variant.adjoint, variant.stack, is_careful, is_aliased, is_simd, is_printed=True)

    label, note_text = f"{kernel.name}, rewritten", functools.partial(stage.texts.keep, variant)
    try:
        compiled = compile_printed(stage.engine, kernel, texts, fields, options, label, note_text=note_text)
        return replace(compiled, is_flat=is_flat)
    except TinsmithError:
        raise
    except Exception as cause:
        rows = [("kernel", kernel.name), (stage.engine.name, compiling.find_error_line(cause))]
        error = GradientError if variant.adjoint else KernelError
        raise error(refusal(words, rows, remedy)) from cause


def compile_printed(
    engine: Engine,
    kernel: nodes.Kernel,
    annotations: Mapping[str, str],
    fields: Mapping[str, Any],
    options: CompileOptions,
    label: str,
    *,
    note_text: Callable[[str], object] = lambda _: None,
) -> Compiled:
    """Print a kernel's IR with annotations of its parameters, and compile the text. `note_text` is given the text."""

    def compile_one(kernel: nodes.Kernel) -> Compiled:
        texts = annotate_numbers(kernel, annotations)
        defaults = types.Defaults(*Language(engine).default_types)  # type: ignore[arg-type]
        text = remember(
            engine,
            "text",
            lambda: (kernel, texts, defaults),
            lambda: unparse(print_kernel(kernel, texts, defaults)),
        )
        note_text(text)
        function = build_printed(text, kernel.name, namespace_of(engine), label)
        # Printed kernels of one text are one kernel, unless they name fields: two texts may name different ones alike.
        return engine.compile(function, dict(fields), options, content=None if fields else "")

    is_alone = bool(fields) or options.adjoint
    compiled = compile_one(kernel) if is_alone else compile_in_family(engine, kernel, compile_one)
    vectors = [one for one in kernel.arrays.values() if one.vector_width]
    sizes = {one.name: one.vector_width * DTYPES[one.type].itemsize for one in vectors}
    return replace(compiled, vector_sizes=sizes)


def annotate_added(kernel: nodes.Kernel, *, is_checked: bool) -> dict[str, str]:
    """Return the annotations of the arrays that a kernel uses by whole machine vectors, and if it `is_checked`, of
    the array in which it records indices out of bounds, by name.
    """
    record = (
        {passes.RECORD: array_text(torch.int32, 1, (), "unsafe", False)}
        if is_checked and passes.RECORD in kernel.arrays
        else {}
    )
    vectors = [one for one in kernel.arrays.values() if one.vector_width]
    texts = [array_text(DTYPES[one.type], one.rank, (one.vector_width,), "unsafe", False) for one in vectors]
    return record | dict(zip([one.name for one in vectors], texts, strict=True))


def to_engine_form(stage: Stage, variant: Variant, kernel: nodes.Kernel) -> nodes.Kernel:
    """Run the pipelines that turn a kernel's IR into what the engine compiles: in the form for its device, and
    without what the engine lacks.
    """
    if has_elements_at_top(kernel):
        kernel = run_pipeline(GENERATED, kernel, PassOptions(is_flat=True))
    if not (variant.adjoint or stage.is_checked):
        kernel = fit_to_device(kernel, stage.engine, variant.find_aligned(kernel))
    return run_pipeline(ENGINE, kernel)


def has_field_elements_at_top(kernel: nodes.Kernel) -> bool:
    """Return True if a kernel uses entries of a field of vectors outside of loops, so that its IR cannot be compiled.

    For arrays there is a remedy, to compile them as arrays of numbers; fields keep the layout in which their owner
    placed them.
    """
    return has_elements_at_top(kernel) and has_elements_at_top(passes.flat(kernel))


def fit_to_device(kernel: nodes.Kernel, engine: Engine, aligned: frozenset[str] = frozenset()) -> nodes.Kernel:
    """Return a kernel in the form that is fast on the engine's device; the same kernel if nothing changes.

    For a CPU its loops are in strips and lanes. For a GPU each thread has several loads in flight, and a loop is one
    launch.

    `aligned` are the arrays whose memory begins at a multiple of the size of a CPU's vector.

    A debugging engine gets loops as they were written: it would report an index out of its axis in an array that is
    indexed by rows, and an iteration whose assertion fails would stop the others of its strip.
    """
    if engine.is_debugging():
        return kernel
    name = name_pipeline(engine)
    options = replace(engine_options(engine), aligned=aligned)

    def find_form() -> nodes.Kernel | None:
        changed = run_pipeline(PIPELINES[name], kernel, options)
        return None if changed is kernel else changed

    return remember(engine, name, lambda: (kernel, engine.has_fast_vectors, aligned), find_form) or kernel


def name_pipeline(engine: Engine) -> str:
    """Return the name of the pipeline that leads to the form for the engine's device."""
    return "CPU" if engine.device_type() == "cpu" else "GPU"


def engine_options(engine: Engine) -> PassOptions:
    """Return the pass options that depend on an engine's compiler."""
    return PassOptions(has_fast_vectors=engine.has_fast_vectors)


def namespace_of(engine: Engine) -> dict[str, Any]:
    """Return the globals of printed kernels: the engine's module, and functions that the engine lacks."""
    home = engine.home.name
    if home not in _FUNCTIONS:
        functions = {f"_{name}": make(engine.lang) for name, make in ARITHMETIC.items()}
        of_vectors = ((name, width) for name in VECTOR_ARITHMETIC for width in VECTOR_WIDTHS)
        functions |= {f"_{name}_of_{width}": VECTOR_ARITHMETIC[name](engine.lang, width) for name, width in of_vectors}
        _FUNCTIONS[home] = functions
    return {"_lang": engine.lang, **_FUNCTIONS[home]}


_FUNCTIONS: dict[str, dict[str, Any]] = {}
"""The functions that engines lack, for printed kernels, by the engine's name."""


class Rewriting(NamedTuple):
    """The reason why a kernel is compiled from its IR instead of its source.

    Attributes:
        purpose: what the op cannot do without it.
        words: in which form it is compiled.
        remedy: what the user can do.
        because: what the engine does wrong with the source; "" if nothing.
    """

    purpose: str
    words: str
    remedy: str
    because: str = ""


BATCH_REWRITING = Rewriting("run a batch", "for a batch", "loop over the samples in Python")
"""All samples of a batch run in one launch (`passes.batch_kernel`)."""
PRODUCTS_REWRITING = Rewriting(
    "run `atomic_mul`",
    "with its atomic products written out",
    "write `a[i] *= v` instead of `atomic_mul` where no other iteration uses the element",
)
"""Products that need not be atomic are plain `a[i] = a[i] * v` (`passes.write_out_products`): engines end the process
if they find that an `atomic_mul` need not be atomic."""


def compile_rewritten(
    stage: Stage, variant: Variant, values: Mapping[str, Any], op: str, *, rewriting: Rewriting
) -> Compiled:
    """Compile a kernel from its IR, where passes rewrote it.

    Raises:
        KernelError: the kernel uses what the IR does not cover, or the engine does not compile it.
    """
    remedy = rewriting.remedy
    kernel, fields = lower_for(stage, variant, values, f"op `{op}` cannot {rewriting.purpose}", remedy)
    words = f"the kernel of op `{op}` does not compile {rewriting.words}"
    return compile_ir(stage, variant, kernel, fields, words, sentence(remedy))


def compile_for_device(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> Compiled:
    """Compile a kernel in the form that is fast on its device (`fit_to_device`).

    Raises:
        KernelError: the engine does not compile it.
        NotCovered: the kernel has no IR.
    """
    kernel, fields = stage.lower_variant(variant, values)
    words = f"the kernel of op `{op}` does not compile in the form for its device"
    return compile_ir(
        stage, variant, kernel, fields, words, "Report this as a bug of tinsmith, with the kernel.", is_same=True
    )


def compile_moved(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> Compiled:
    """Compile a kernel, or an engine's reverse of it, for another engine than the one that it was written for.

    Its IR names nothing of the original engine: functions are inlined, and the values of modules, objects, closures and
    types are known.

    Raises:
        KernelError: the kernel uses fields, or what the IR does not cover; or the engine does not compile it.
    """
    moved = f"the kernel of op `{op}` cannot be moved from {stage.home.name} to {stage.engine.name}"
    remedy = f"write the kernel for {stage.engine.name}"
    kernel, fields = lower_for(stage, variant, values, moved, remedy)
    if fields:
        name = next(array.label for array in kernel.arrays.values() if array.label)
        rows = [(f"`{name}`", f"is a field of {stage.home.name}, which {stage.engine.name} cannot read")]
        raise KernelError(refusal(moved, rows, sentence(f"pass it as an array, or {remedy}")))
    if variant.adjoint:
        moved = f"{stage.engine.name} cannot differentiate the kernel of op `{op}`"
        return compile_ir(
            stage, variant, kernel, {}, moved, compiling.describe_reverse_remedy(stage.engine, is_op=True)
        )
    return compile_ir(stage, variant, kernel, {}, moved, sentence(remedy))


def find_misreading(stage: Stage, variant: Variant, values: Mapping[str, Any]) -> Rewriting | None:
    """Return how the first construct is rewritten that the engine would compile wrongly; None if there is none.

    Divisions are rewritten by `passes.write_out_divisions`; a changed loop variable becomes a local.
    """
    if stage.changed_loop_variable is not None:
        return Rewriting(
            "change a loop variable",
            "with its assignments to loop variables written out",
            "assign the changed value to a new variable",
            f"it ignores the assignment to the loop variable at {stage.changed_loop_variable}",
        )
    stopped = next((role.stopped for role in stage.roles.values() if role.stopped), "")
    if stopped:
        return Rewriting(
            "stop the gradient of an array",
            "with its stopped gradients written out",
            "pass `x.detach()` to the op and leave out `stop_grad`",
            f"its `stop_grad` works only on fields, and its argument at {stopped} is an array",
        )
    loop = stage.find_loop_in_order(variant, values)
    if loop:
        return Rewriting(
            "run a loop in order",
            "with its loop in order written out",
            'promise unique indices in the spec, use an atomic operation, or pass `races="allow"`',
            f"it runs iterations in parallel that may race, in the loop at {loop}",
        )
    if stage.has_misread_divisions(variant, values):
        return Rewriting(
            "divide negative integers as Python does",
            "with its divisions of constant integers written out",
            f"divide in Python, before the kernel or in `{stage.module_name}.static(...)`",
            "it rounds `//` and `%` of negative constant integers toward zero, not down",
        )
    return None


def build_misread_error(stage: Stage, op: str, misreading: Rewriting) -> GradientError:
    """Build the error for an engine's gradient of a kernel that the engine misreads."""
    words = (
        f"{stage.engine.name} would return a wrong gradient for the kernel of op `{op}`: "
        "it compiles one of its constructs wrongly"
    )
    rows = [("kernel", f"{stage.name} at {stage.source.place(stage.source.tree)}"), ("because", misreading.because)]
    return GradientError(refusal(words, rows, sentence(f"{misreading.remedy}, or use the generated gradient")))
