"""The IR of an op after each pass, as text: `op.explain(passes=True)` and `tinsmith adjoint --print-ir-after`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ...calls import CallKey, Core
from ...calls.backward import AutoReverse, SourceAt, SourceReverse
from ...calls.derived import TangentCore, find_recorded_at
from ...compiling import is_compiled_from_ir, to_engine_form
from ...ir import NotCovered, nodes, observe_passes, print_ir
from ...passes import PASS_NAMES

PassOutput = tuple[str, nodes.Kernel]
"""The name of a pass, and a kernel of its output."""


def record_passes(
    make_core: Callable[[], Core],
    wanted: Iterable[tuple[CallKey, Collection[frozenset[str]]]],
    tangents: Collection[frozenset[str]] = (),
) -> list[PassOutput]:
    """Run all passes of an op, and return the IR after each, in order.

    Args:
        make_core: makes a new core of the op: one that was used already does not run its passes again.
        wanted: kinds of calls, each with the sets of inputs to differentiate by.
        tangents: sets of inputs that have a tangent.

    Raises:
        NotCovered: a kernel cannot be lowered, or has no generated gradient.
    """
    outputs: list[PassOutput] = []
    with observe_passes(lambda name, kernel: outputs.append((name, kernel))):
        core = make_core()
        for key, gradients in wanted:
            _run_passes(core, replace(key, signature=core.signature), gradients, tangents)
    return outputs


def explain_passes(core: Core, make_core: Callable[[], Core]) -> str:
    """Return the IR after each pass as text, for the kinds of calls and the gradients that the op has had so far.

    Args:
        core: the op's core.
        make_core: makes a new one of the same op.
    """
    reverse = core.reverse
    source = reverse.source if isinstance(reverse, AutoReverse) else reverse
    known = source.specializations if isinstance(source, SourceReverse) else ()
    wanted = {at.key.variants: (at.key, _list_gradients(at)) for at in known}
    # The gradients of an op that uses atomics' results are those of its replayed form.
    replayed = [
        active & {*core.signature.arrays}
        for recorded in core.recorded.values()
        for at in recorded.replay.source.specializations
        for active in _list_gradients(at)
    ]
    for program in list(core.programs.values()):
        key = program.key
        if replayed or key.variants not in wanted:
            wanted[key.variants] = key, replayed
    if not wanted:
        return "passes: known after a call"
    try:
        return print_passes(record_passes(make_core, wanted.values(), tuple(core.tangents)))
    except NotCovered as reason:
        return f"passes: none, since tinsmith cannot follow {reason.construct}, at {reason.place}"


def _list_gradients(at: SourceAt) -> list[frozenset[str]]:
    """Return the sets of inputs for which gradients were generated."""
    return [active for active, _ in at.requests if at.refusal(active) is None]


def _run_passes(
    core: Core,
    key: CallKey,
    gradients: Collection[frozenset[str]],
    tangents: Collection[frozenset[str]],
) -> None:
    signature = key.signature
    variants = dict(zip(signature.stages, key.variants, strict=True))
    for stage in signature.firsts:
        variant = variants[stage]
        kernel, _ = stage.lower_variant(variant, key.templates)
        if is_compiled_from_ir(stage, variant, key.templates, signature.op):
            to_engine_form(stage, variant, kernel)
    recorded = find_recorded_at(core, key) if gradients else None
    at = SourceReverse(signature).specialize(key) if recorded is None else recorded.specialize_replay(key)
    for moving in tangents:
        TangentCore(core, moving).kernels(key)
    for active in gradients:
        program = at.prepare_program(active, None, active & {*signature.arrays})
        for run in program.runs:
            at.emit(run).prepare([])


def print_passes(outputs: Iterable[PassOutput], names: Collection[str] = PASS_NAMES) -> str:
    """Return the output of passes as text: the kernels, with source lines, or a note that they did not change."""
    parts: list[str] = []
    last: dict[str, str] = {}
    for name, kernel in outputs:
        text = print_ir(kernel)
        if name in names:
            title = f"# after {name}, kernel {kernel.name}"
            parts.append(f"{title}\n{text}" if text != last.get(kernel.name) else f"{title}: no change\n")
        last[kernel.name] = text
    return "\n".join(parts)
