"""The autograd Function of plain eager calls, where every microsecond counts.

Only autograd itself is active here. All other ways to differentiate, batch or
trace use the operator of `operators/_operator`, and so does this Function's own gradient if
it may be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._cache import cache_results
from ..calls import BackwardCall, BoundArguments, Call, CapturedValues, Core, Program, find_saved_names, no_forward_mode
from ..engines import hide_frames
from ..spec import Numbers
from ..tracing import has_older_batch, is_tracing, is_transformed, plain_apply

Apply = Callable[..., Any]


class EagerFunction(torch.autograd.Function):
    """A call in plain eager mode."""

    @staticmethod
    def forward(
        ctx: Any, core: Core, program: Program, numbers: Numbers, others: BoundArguments, *inputs: torch.Tensor
    ) -> Any:
        active, scalars = program.active, others.scalars
        passes = program.passes(active)
        if passes.is_early:
            program.prepare_backward(active, numbers, scalars)
        captured = ctx.captured = program.capture(others.templates)
        arrays = passes.forward.find(numbers, scalars)(inputs, (), numbers, scalars)
        ctx.asked = core, program, numbers, others
        if captured is not None:
            ctx.save_for_backward(program.mark, *[arrays[place] for place in passes.places])
        elif passes.places:
            ctx.save_for_backward(*[arrays[place] for place in passes.places])
        outputs = arrays[program.outputs]
        if len(outputs) == 1 and not program.steady_outputs:
            # Autograd calls `backward` for a single output only with a cotangent, so None need not be expected.
            return outputs[0]
        ctx.set_materialize_grads(False)
        if program.steady_outputs:
            ctx.mark_non_differentiable(*[outputs[place] for place in program.steady_outputs])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        captured = ctx.captured
        # Compiled autograd traces this. A graph cannot compare what fields hold, so there it breaks below.
        if is_tracing() and (captured is None or not captured.contents):
            return (None, None, None, None, *_trace_backward(ctx, cotangents))
        core, program, numbers, others = ctx.asked
        if captured is not None:
            captured.check_fields()
        if len(cotangents) > 1 and all([cotangent is None for cotangent in cotangents]):  # noqa: C419  # faster
            return (None,) * (4 + program.inputs)
        active = program.select_active(ctx.needs_input_grad[4:])
        passes = program.passes(program.active)
        kept: list[Any] = [*ctx.saved_tensors] if passes.names or captured is not None else []
        if captured is not None:
            _check_mark(captured, program.mark, kept.pop(0))
        saved = dict(zip(passes.names, kept, strict=True))
        is_plain = not (torch.is_grad_enabled() or is_transformed() or has_older_batch(cotangents))
        # The operator finds the plan of an engine that was started again. On a GPU the old one's memory is gone.
        if not (is_plain and program.is_current()):
            state = None
            if captured is not None:
                # Operators make their plans with the Python values of now. A derivative of theirs compares again.
                captured.check()
                state = captured.as_state()
            return (
                None,
                None,
                None,
                None,
                *_differentiable(core.call_with(program.key, numbers, others), active, saved, cotangents, state),
            )
        has_results = passes.has_results and active == program.active
        try:
            return (
                None,
                None,
                None,
                None,
                *program.backward(saved, cotangents, active, numbers, others.scalars, has_results),
            )
        except Exception as error:
            hide_frames(error)
            raise

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise no_forward_mode(ctx.asked[0].signature.op)


@cache_results("functions of autograd", 1024)
def make_eager_function(op: str) -> Apply:
    """`EagerFunction.apply` under the op's name: profilers, `grad_fn` and anomaly mode show the name of a Function."""
    return plain_apply(type(op, (EagerFunction,), {"__module__": __name__}))


def _check_mark(captured: CapturedValues, mark: torch.Tensor, saved: torch.Tensor) -> None:
    """Refuse a gradient whose saved tensors are not those of the forward pass.

    `torch.utils.checkpoint` runs a forward pass again for them, which leaves a mark of its own if it had other values.
    """
    # A hook may have saved it in another precision; then it says nothing.
    if saved is not mark and saved.dtype is mark.dtype and not torch.equal(saved, mark):
        captured.check()
        raise captured.explain_mark(saved)


def _trace_backward(ctx: Any, cotangents: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
    """Gradients by the operator, for a compiler that traces a backward pass: compiled autograd."""
    core, program, numbers, others = ctx.asked
    call = core.call_with(program.key, numbers, others)
    outputs = call.core.signature.outputs
    given = {name: one for name, one in zip(outputs, cotangents, strict=True) if one is not None}
    if not given:
        return [None] * len(ctx.needs_input_grad[4:])
    kept, state = ctx.saved_tensors, None
    if ctx.captured is not None:
        state, *kept = kept
    values = dict(zip(program.passes(program.active).names, kept, strict=True))
    active = call.select_active(ctx.needs_input_grad[4:])
    read = program.reverse.find_read(active)
    saved = {name: one for name, one in values.items() if name in read}
    asked = BackwardCall(call, active, saved, given, state)
    return call.by_input(active, call.core.operators.launch_backward(asked))


def _differentiable(
    call: Call,
    active: frozenset[str],
    saved: Mapping[str, torch.Tensor],
    cotangents: Sequence[Any],
    state: torch.Tensor | None,
) -> list[Any]:
    """Gradients by the operator, which transforms and both vmaps of torch see."""
    pairs = zip(call.core.signature.outputs, cotangents, strict=True)
    given = {name: one for name, one in pairs if one is not None}
    asked = BackwardCall(call, active, {name: saved[name] for name in find_saved_names(call, active)}, given, state)
    return call.by_input(active, call.core.operators.launch_backward(asked))
