"""Counts of operations for `torch.utils.flop_counter`: of an op's source, and of its generated gradient."""

from __future__ import annotations

from ..calls import BackwardCall, Call
from ..calls.backward import AutoAt, SourceAt
from ..ir import NotCovered
from ..passes.adjoint import Run, count_flops


def count_forward_flops(call: Call) -> int:
    """Count the floating-point operations of a call's forward pass; 0 if its kernels cannot be analyzed."""
    shapes, samples = _find_shapes(call)
    try:
        kernels = [one.kernel for one in call.core.kernels(call.core.key(call))]
    except NotCovered:
        return 0
    return samples * sum(count_flops(kernel, shapes, call.scalars) for kernel in kernels)


def count_backward_flops(asked: BackwardCall) -> int:
    """Count the floating-point operations of a generated backward pass; 0 if it is not generated."""
    reverse = asked.call.reverse
    if isinstance(reverse, AutoAt):
        reverse = reverse.choose(asked.active)
    if not isinstance(reverse, SourceAt):
        return 0
    program = reverse.program(asked.active)
    shapes, samples = _find_shapes(asked.call)
    shapes |= {gradient: shapes[name] for name, gradient in program.gradients.items() if name in shapes}
    total = 0
    for action in program.actions:
        if isinstance(action, Run):
            pairs = ((name, action.memory.get(name, name)) for name in action.kernel.arrays)
            known = {name: shapes[memory] for name, memory in pairs if memory in shapes}
            total += count_flops(action.kernel, known, asked.call.scalars)
    return samples * total


def _find_shapes(call: Call) -> tuple[dict[str, tuple[int, ...]], int]:
    """Return the shapes of all arrays as one launch sees them, and the number of launches.

    If samples of a batch run one by one, each is a launch, and its arrays have no batch dimension.
    """
    core = call.core
    made = {buffer.name: buffer.shape for buffer in call.allocations}
    shapes = dict(zip(core.signature.arrays, call.whole_shapes, strict=True)) | made
    if not core.key(call).is_looped:
        return shapes, 1
    batched = call.batched | made.keys()
    return {name: shape[1:] if name in batched else shape for name, shape in shapes.items()}, call.batch or 0
