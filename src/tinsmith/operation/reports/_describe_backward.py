"""A generated backward pass as text: the values that it saves, its memory, and its kernels."""

from __future__ import annotations

from collections.abc import Iterator

from ..._config import config
from ...calls.backward import SourceAt
from ...engines import DTYPES
from ...passes import formula_text
from ...passes.adjoint import Action, Copy, Fresh, How, Reserve, Run


def describe_backward(at: SourceAt, active: frozenset[str], *, has_checkpoints: bool = False) -> Iterator[str]:
    """Yield the lines of text that describe a backward pass. All but source code are comments. Raise NotCovered."""
    alone = active & {*at.key.signature.arrays}
    program = at.prepare_program(active, None, alone, has_checkpoints=has_checkpoints)
    yield f"# saved for the backward pass: {', '.join(sorted(at.find_reads(active))) or 'nothing'}"
    kept = [one for one in program.decisions if one.how is not How.RECOMPUTE]
    rows = (*program.decisions, *program.notes) if kept or program.notes else ()
    yield from (f"# {one}" for one in rows or ("tape: none, everything is computed again",))
    outputs = {program.gradients.get(name): name for name in at.key.signature.outputs}
    for name, gradient in program.gradients.items():
        if gradient in outputs and outputs[gradient] != name:
            yield f"# the gradient of `{name}` is that of `{outputs[gradient]}`, not copied"
    if (stored := at.results(active)) is not None and not has_checkpoints:
        yield "# an eager call keeps what its backward pass needs of loops, for each parallel iteration:"
        for size in stored.sizes:
            assert size.depth is not None
            entries = formula_text(size.depth[1], lambda array, axis: f"{array}.shape[{axis}]", str)
            times = "" if entries == "1" else f" times {entries}"
            times += " for all of them together" if size.is_whole else ""
            yield from (f"#   {name}: {DTYPES[kind].itemsize} bytes{times}" for name, kind, _ in size.arrays)
        yield "# That backward pass does not run these loops forward, as the one below does"
    if program.has_long_tapes:
        yield f"# a call that takes more than {config().tape_limit:,} bytes of tape keeps checkpoints instead"
    for action in program.actions:
        yield from _describe_action(at, action)


def _describe_action(at: SourceAt, action: Action) -> Iterator[str]:
    match action:
        case Fresh(name, like):
            yield f"# {name}: memory like `{like}`, zero"
        case Copy(name, of):
            yield f"# {name}: a copy of {of}"
        case Run():
            yield ""
            renamed = [f"{name} = {memory}" for name, memory in sorted(action.memory.items()) if name != memory]
            if renamed:
                yield f"# launched with {', '.join(renamed)}"
            yield from at.emit(action).readable
            yield ""
        case Reserve(tapes, _, _, count):
            names = ", ".join(name for size in tapes for name, _, _ in size.arrays)
            yield f"# room on {names}: {'counted by a kernel' if count else 'by a formula'}"
            if count:
                yield from _describe_action(at, count)
