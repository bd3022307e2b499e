"""The text of `op.explain()`: arrays and their uses, gradients, saved values, compiled variants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import torch

from ..._config import config
from ..._errors import ArgumentError, GradientError, refusal
from ..._machine import ASSUMED, OPERATION, OPERATION_IN_VECTORS, find_machine
from ...calls import CallKey, Core, Pace, compute_dtypes, fitting_dtypes
from ...calls.backward import RACE, AutoReverse, KernelReverse, Reverse, ReverseAt, SourceReverse
from ...compiling import ArrayType, Stage, Variant, spell_members
from ...engines import name_file, one_at_a_time
from ...torch_side import find_shares
from ._describe_backward import describe_backward
from ._explanation import Explanation, Section, summarize_sections

Detail = Literal["summary", "all"]

_ORIGINS = {
    "auto": "generated from the kernels' source where they are covered, else the engine's reverse mode",
    "source": "generated from the kernels' source",
    "engine": "the engine's reverse mode",
    "backward": "a hand-written kernel",
}
_USES: dict[str, str] = {"read": "reads", "write": "writes", "add": "adds to"}


@one_at_a_time
def explain(core: Core, detail: Detail = "summary") -> Explanation:
    """Return a description of an op in plain text, for `op.explain()`.

    Args:
        core: the op's core.
        detail: "summary" for at most 25 lines, "all" for all of it, with the source of what was generated and compiled.
    """
    if detail not in ("summary", "all"):
        rows = [("got", repr(detail)), ("expected", "'summary' or 'all'")]
        raise ArgumentError(refusal("`explain` got an unknown `detail`", rows))
    sections = {title: "\n".join(lines) for title, lines in _collect_sections(core).items()}
    if detail == "all":
        return Explanation("\n\n".join(filter(None, sections.values())), sections)
    return Explanation(_summarize(core), sections)


def _collect_sections(core: Core) -> dict[str, Sequence[str]]:
    """Return the lines of the whole description, by the titles of its sections."""
    kernels = [line for stage in core.signature.firsts for line in ("", *_describe_kernel(core, stage))][1:]
    return {
        "op": list(_describe_signature(core)),
        "kernels": kernels,
        "gradient": [*_describe_gradient(core), *_describe_tapes(core)],
        "threads": list(_describe_threads(core)),
        "batches": list(_describe_batches(core)),
        "sharding": list(_describe_shares(core)),
        "programs": [str(program) for program in list(core.programs.values())],
        "compiled variants": list(_describe_variants(core)),
    }


def _summarize(core: Core) -> str:
    """Return the description in at most 25 lines: the gradient and what it keeps first, no source."""
    programs, variants = len(core.programs), sum(len(stage.texts) for stage in core.signature.firsts)
    calls = (
        f"{programs} kind{'s' * (programs != 1)} of calls so far, {variants} compiled variant{'s' * (variants != 1)}"
    )
    return summarize_sections(
        [
            Section([*_describe_signature(core)], 3),
            Section([*_describe_gradient(core, with_source=False), *_describe_tapes(core)], 7),
            Section([line for stage in core.signature.firsts for line in _summarize_kernel(core, stage)], 5),
            Section([*_describe_threads(core)], 3),
            Section([*_summarize_batches(core)], 2),
            Section([*_summarize_shares(core)], 3),
        ],
        f'{calls}; all of it: explain("all")',
    )


def _describe_signature(core: Core) -> Iterable[str]:
    yield f"op `{core.signature.op}`: {core.signature.spec}"
    if core.signature.spec.scratch_text:
        yield f"  scratch: {core.signature.spec.scratch_text}"


def _describe_kernel(core: Core, stage: Stage) -> Iterable[str]:
    moved = "" if stage.engine is stage.home else f" (written for {stage.home.name})"
    yield f"kernel `{stage.name}` at {stage.source.place(stage.source.tree)}, on {stage.engine.name}{moved}"
    for name in stage.arrays:
        yield f"  {_spell(core, name)}: {', '.join(_list_uses(stage, name)) or 'shape only'}"
    yield from _describe_order(core, stage)


def _summarize_kernel(core: Core, stage: Stage) -> Iterable[str]:
    """Yield a line about what a kernel does with its arrays, and those about loops that run in order."""
    uses: dict[str, list[str]] = {}
    for name in stage.arrays:
        kinds = [_USES[kind] for kind in _list_uses(stage, name)]
        uses.setdefault(" and ".join(kinds) or "uses the shape of", []).append(_spell(core, name))
    file, line = Path(name_file(stage.source.path)).name, stage.source.tree.lineno
    words = "; ".join(f"{use} {', '.join(names)}" for use, names in uses.items())
    yield f"kernel `{stage.name}` ({file}:{line}, {stage.engine.name}): {words}"
    yield from _describe_order(core, stage)


def _spell(core: Core, name: str) -> str:
    """Return the caller's name of an array: `state.q` of a member of a struct, for which kernels say `state_q`."""
    return spell_members(name, core.signature.members)


def _list_uses(stage: Stage, name: str) -> Sequence[str]:
    return list(dict.fromkeys(access.kind for access in stage.roles[name].accesses))


def _describe_order(core: Core, stage: Stage) -> Iterable[str]:
    """Yield lines about loops that run in order, and about the number of launches if there are several."""
    for line, words in stage.loops_in_order.items():
        yield f"  in order: the loop in line {line}, because {words}"
    count = sum(one.first is stage for one in core.signature.stages)
    if count > 1:
        yield f"  launched {count} times"


def _describe_variants(core: Core) -> Iterable[str]:
    """Yield the source of each compiled variant of the kernels."""
    texts = [(variant, text) for stage in core.signature.firsts for variant, text in list(stage.texts.items())]
    yield f"compiled variants: {len(texts)}"
    for variant, text in texts:
        yield from ("", f"  # {_describe_variant(variant)}", *(f"  {line}" for line in text.rstrip().splitlines()))


def _describe_gradient(core: Core, *, with_source: bool = True) -> Iterable[str]:
    reverse = core.reverse
    if isinstance(reverse, KernelReverse):
        yield f"gradient: {_ORIGINS[reverse.name]}"
        yield from _describe_saved(reverse, frozenset(core.signature.arrays))
        return
    source = reverse.source if isinstance(reverse, AutoReverse) else reverse
    assert isinstance(source, SourceReverse)
    is_known = any(at.requests for at in source.specializations)
    is_generated = all(at.refusal(active) is None for at in source.specializations for active, _ in at.requests)
    yield f"gradient: {_ORIGINS['source' if is_known and is_generated and not with_source else reverse.name]}"
    if not source.specializations and not core.recorded:
        yield "  what it takes is known after the first call that wants one"
    yield from _describe_requests(reverse, source, with_source=with_source)
    for recorded in core.recorded.values():
        if any(at.requests for at in recorded.replay.source.specializations):
            yield f"  with what atomics returned in the forward pass: {', '.join(recorded.names.values())}"
            yield from _describe_requests(recorded.replay.reverse, recorded.replay.source, with_source=with_source)


def _describe_requests(reverse: Reverse, source: SourceReverse, *, with_source: bool) -> Iterable[str]:
    """Yield lines about the gradients requested so far: their origin, or why they are refused."""
    for at in source.specializations:
        for active, has_checkpoints in at.requests:
            yield f"  for {', '.join(sorted(active))}" + (" from checkpoints" if has_checkpoints else "")
            reason = at.refusal(active)
            if reason is None:
                lines = describe_backward(at, active, has_checkpoints=has_checkpoints)
                # All but source code are comments.
                facts = (line.removeprefix("# ") for line in lines if line.startswith("#"))
                yield from (f"    {line}".rstrip() for line in (lines if with_source else facts))
                continue
            yield f"    not generated: {reason.construct}, at {reason.place}"
            if isinstance(reverse, AutoReverse) and reason.race is None:
                yield f"    instead: {_ORIGINS['engine']}"
                yield from (f"  {line}" for line in _describe_saved(reverse.engine, active))
            elif reason.race is not None:
                yield f"    refused: {RACE}"


def _describe_saved(reverse: ReverseAt, active: frozenset[str]) -> Iterable[str]:
    try:
        reverse.check(active)
    except GradientError as reason:
        yield f"  refused: {reason}"
        return
    read = sorted(reverse.find_reads(active))
    yield f"  saved for the backward pass: {', '.join(read) or 'nothing'}"


def _describe_threads(core: Core) -> Iterable[str]:
    """Yield lines about which kernels ran on one thread so far, and why."""
    yield "threads:"
    lines: dict[str, None] = {}
    for program in list(core.programs.values()):
        for words, runner in program.runners:
            for serial, counts in runner.choices.items():
                for group, is_serial, (count, is_dear) in zip(runner.threads.groups, serial, counts, strict=True):
                    if not group.has_parallel_loops:
                        lines[f"  {words}, `{group.name}`: one thread (it has no parallel loop)"] = None
                        continue
                    below = _describe_bound(group.pace, count, is_serial=is_serial)
                    if is_serial and is_dear and count >= group.pace.serial_below:
                        below = f"{count:,} operations, with atomics that would cost more than threads save"
                    threads = "one thread" if is_serial else "several threads"
                    lines[f"  {words}, `{group.name}`: {threads} ({below})"] = None
    yield from lines or ["  known after a call, on a CPU"]
    if lines and core.paces.serial_below is None:
        yield f"  {_describe_machine(core)}"


def _describe_bound(pace: Pace, count: int, *, is_serial: bool) -> str:
    if math.isinf(pace.serial_below):
        return f"{count:,} operations; the engine has one thread"
    bound = int(pace.serial_below)
    if not is_serial and count < pace.serial_below:
        return f"{count:,} operations, which move {int(pace.bytes_below):,} bytes or more"
    return f"{count:,} operations, {'below' if is_serial else 'not below'} {bound:,}"


def _describe_machine(core: Core) -> str:
    """Describe the costs by which threads were chosen."""
    machine = ASSUMED if core.signature.is_deterministic else find_machine()
    source = "measured on this machine" if machine.is_measured else "assumed"
    costs = f"an operation {1e9 * OPERATION:.2f} ns, in vectors {1e9 * OPERATION_IN_VECTORS:.2f}"
    moved = f"a byte {1e9 * machine.byte:.3f}"
    return f"waking threads takes {1e6 * machine.wake:.0f} us, {moved} ns ({source}); {costs}"


def _describe_tapes(core: Core) -> Iterable[str]:
    """Yield lines about the backward passes that kept checkpoints, and why."""
    for program in list(core.programs.values()):
        for words, runner in program.runners:
            if runner.longest_tape:
                limit = f"more than the {config().tape_limit:,} of TINSMITH_TAPE_LIMIT"
                yield f"  {words}: {runner.longest_tape:,} bytes of tape, {limit}, so it ran from checkpoints"


def _describe_batches(core: Core) -> Iterable[str]:
    """Yield lines on whether `vmap` and `*b` take one launch, for the last call, or for float32 before the first."""
    key = next((program.key for program in reversed([*core.programs.values()])), None)
    for stage in core.signature.firsts:
        if key is None and stage.open_templates:
            name = _spell(core, stage.open_templates[0])
            yield f"batches of `{stage.name}`: known after a call, which brings `{name}`"
            continue
        reason = stage.explain_batch_refusal(_all_batched(core, stage, key), key.templates if key else {})
        yield f"batches of `{stage.name}`: " + (f"one launch a sample ({reason})" if reason else "one launch")


def _summarize_batches(core: Core) -> Iterable[str]:
    """Yield a single line if `vmap` and `*b` take one launch of every kernel."""
    lines = list(_describe_batches(core))
    yield from ["batches: one launch"] if all(line.endswith(": one launch") for line in lines) else lines


def _summarize_shares(core: Core) -> Iterable[str]:
    lines = list(_describe_shares(core))
    yield from [] if lines[1:] == ["  none"] else lines


def _describe_shares(core: Core) -> Iterable[str]:
    """Yield lines about the dims that may be sharded over processes, for a call in float32 unless dtypes are fixed."""
    signature = core.signature
    yield "dims that may be sharded over processes (DTensor):"
    if signature.spec.batch_name:
        yield f"  *{signature.spec.batch_name}: its dims"
    fitting = ((fitting_dtypes(signature, name) or (torch.float32,))[0] for name in signature.arrays)
    shares = find_shares(core, compute_dtypes(list(fitting)))
    for dim, axes in shares.axes.items():
        whole = [_spell(core, name) for name in signature.arrays if name not in axes]
        yield f"  {dim}" + (f", with {', '.join(whole)} whole in each process" if whole else "")
    for dim, why in shares.reasons.items():
        yield f"  not {dim}: {why}"
    if not (shares.axes or shares.reasons or signature.spec.batch_name):
        yield "  none"


def _all_batched(core: Core, stage: Stage, key: CallKey | None) -> Variant:
    items = core.signature.items
    arrays = []
    for name in stage.arrays:
        element = stage.parameters[name].element
        rank = len(items[name].dims) - (items[name].batch_name is not None) - len(element)
        dtype = key.dtypes[name] if key else (fitting_dtypes(core.signature, name) or (torch.float32,))[0]
        arrays.append((name, ArrayType(dtype, rank, element, is_batched=True)))
    return Variant(tuple(arrays))


def _describe_variant(variant: Variant) -> str:
    arrays = ", ".join(
        f"{name}: {str(array.dtype).removeprefix('torch.')}" + (" batched" if array.is_batched else "")
        for name, array in variant.arrays
    )
    words = ["reverse" if variant.adjoint else "forward", *(["serial"] if variant.is_serial else [])]
    return f"{' '.join(words)} ({arrays})"
