"""Operations for `torch.utils.flop_counter`: those in an op's source and in its generated gradient."""

from __future__ import annotations

from ..calls import BackwardCall, Call
from ..calls.backward import AutoAt, ReverseAt, SourceAt
from ..ir import NotCovered
from ..passes.adjoint import Run, count_flops


def forward_flops(call: Call) -> int:
    """Operations of a call; 0 where its source is not understood."""
    shapes, samples = _shapes(call)
    try:
        kernels = [one.kernel for one in call.core.kernels(call.core.key(call))]
    except NotCovered:
        return 0
    return samples * sum(count_flops(kernel, shapes, call.scalars) for kernel in kernels)


def backward_flops(asked: BackwardCall) -> int:
    """Operations of a generated backward pass; 0 for one that was written by hand, or is the engine's."""
    generated = _find_generated(asked.call.reverse, asked.active)
    if generated is None:
        return 0
    program = generated.program(asked.active)
    shapes, samples = _shapes(asked.call)
    shapes |= {gradient: shapes[name] for name, gradient in program.gradients.items() if name in shapes}
    total = 0
    for action in program.actions:
        if isinstance(action, Run):
            known = {name: shapes[memory] for name, memory in _memory(action).items() if memory in shapes}
            total += count_flops(action.kernel, known, asked.call.scalars)
    return samples * total


def _memory(run: Run) -> dict[str, str]:
    return {name: run.memory.get(name, name) for name in run.kernel.arrays}


def _find_generated(reverse: ReverseAt, active: frozenset[str]) -> SourceAt | None:
    if isinstance(reverse, AutoAt):
        reverse = reverse.choose(active)
    return reverse if isinstance(reverse, SourceAt) else None


def _shapes(call: Call) -> tuple[dict[str, tuple[int, ...]], int]:
    """Shapes of all arrays as one launch sees them, and how many launches there are."""
    core = call.core
    made = {buffer.name: buffer.shape for buffer in call.allocations}
    shapes = dict(zip(core.signature.arrays, call.whole_shapes, strict=True)) | made
    if not core.key(call).is_looped:
        return shapes, 1
    batched = call.batched | made.keys()
    return {name: shape[1:] if name in batched else shape for name, shape in shapes.items()}, call.batch or 0
