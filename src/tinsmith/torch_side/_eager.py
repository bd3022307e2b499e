"""The autograd Function of plain eager calls, where every microsecond counts.

Only autograd itself is active here. All other ways to differentiate, batch or trace use the operator of
`torch_side/_operator`. This Function's own backward pass uses it too, if it may be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from .._cache import cache_results
from .._errors import GradientError, refusal
from .._tracebacks import hide_frames
from ..calls import BoundArguments, CapturedValues, Core, Program
from ..spec import Numbers
from ..tracing import get_unchecked_apply, has_legacy_batch, is_tracing, is_transformed

Apply = Callable[..., Any]
Asked = tuple[Core, Program, Numbers, BoundArguments]
"""A call: the op's core, its program, the numbers of its sizes, and its arguments without tensors."""
_NOTHING: Mapping[str, torch.Tensor] = {}


class EagerFunction(torch.autograd.Function):
    """The autograd Function of a call in plain eager mode."""

    @staticmethod
    def forward(ctx: Any, asked: Asked, *inputs: torch.Tensor) -> Any:
        _, program, numbers, others = asked
        scalars = others.scalars
        passes = program.own_passes
        # A forward pass that cannot be compiled is the cause of an error of the backward pass, so it comes first.
        run = passes.forward.find(numbers, scalars)
        if passes.is_early:
            program.prepare_backward(program.active, numbers, scalars)
        captured = program.capture(others.templates)
        arrays = run(inputs, (), numbers, scalars)
        ctx.asked = asked, captured
        if captured is not None:
            ctx.save_for_backward(program.mark, *[arrays[place] for place in passes.places])
        elif passes.places:
            ctx.save_for_backward(*[arrays[place] for place in passes.places])
        if program.is_single:
            # Autograd calls `backward` for a single output only with a cotangent, so None need not be expected.
            return arrays[program.inputs]
        outputs = arrays[program.outputs]
        ctx.set_materialize_grads(False)
        if program.steady_outputs:
            ctx.mark_non_differentiable(*[outputs[place] for place in program.steady_outputs])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        (core, program, numbers, others), captured = ctx.asked
        # An update has more inputs, whose gradients are None.
        passes, needs = program.own_passes, ctx.needs_input_grad[: 1 + program.inputs]
        # Compiled autograd traces this. A graph cannot compare what fields hold, so there it breaks below.
        if is_tracing() and (captured is None or not captured.contents):
            return (None, *_trace_backward(ctx, cotangents, needs[1:]))
        is_plain = not (torch.is_grad_enabled() or is_transformed() or has_legacy_batch(cotangents))
        # The operator finds the program of an engine that was started again. On a GPU the old one's memory is gone.
        is_plain = is_plain and program.is_current()
        kept: list[Any] | None = None
        # Most backward passes: one like it was run before, and needs no more than the runner of that.
        if is_plain and needs in program.known_runners and (captured is None or not captured.contents):
            kept = _unpack(ctx)
            # A forward pass that was run again saved a mark of its own, which is compared below.
            if captured is None or kept[0] is program.mark:
                return _run_known(ctx.asked[0], kept[captured is not None :], cotangents, needs)
        if captured is not None:
            captured.check_fields()
        if len(cotangents) > 1 and all([cotangent is None for cotangent in cotangents]):  # noqa: C419  # faster
            return (None,) * (1 + program.inputs)
        active = program.select_active(needs[1:])
        kept = _unpack(ctx) if kept is None else kept
        if captured is not None:
            _check_mark(captured, program.mark, kept.pop(0))
        saved = dict(zip(passes.names, kept, strict=True))
        if not is_plain:
            state = None
            if captured is not None:
                # Operators make their programs with the Python values of now. A derivative of theirs compares again.
                captured.check()
                state = captured.as_state()
            call = core.make_call_with(program.key, numbers, others)
            saved = {name: saved[name] for name in call.find_saved_names(active)}
            return (None, *call.pull_back(active, saved, cotangents, state))
        has_results = passes.has_results and active == program.active
        try:
            gradients = program.backward(saved, cotangents, active, numbers, others.scalars, has_results)
        except Exception as error:
            hide_frames(error)
            raise
        program.note_runner(needs, active, has_results=has_results)
        return (None, *gradients)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        words = f"op `{ctx.asked[0][0].signature.op}` has no forward-mode derivative (jvp)"
        remedy = "Use reverse mode: torch.func.vjp, grad or jacrev instead of jvp, jacfwd or hessian."
        raise GradientError(refusal(words, remedy=remedy))


class Update(NamedTuple):
    """How a call that autograd records changes the memory of arguments in place.

    Attributes:
        program: runs the kernels on the arguments' own memory. The program of the functional op has the gradient.
        updated: the places of the updated arguments among the op's inputs.
        copied: the places of those whose old values the backward pass reads.
        targets: the places of the updated arguments among the inputs of `UpdatingFunction`.
        saved: the places among the program's arrays of what the backward pass reads.
    """

    program: Program
    updated: tuple[int, ...]
    copied: tuple[int, ...]
    targets: tuple[int, ...]
    saved: tuple[int, ...]


class UpdatingFunction(torch.autograd.Function):
    """The autograd Function of a plain eager call that updates arguments in place.

    Its inputs are those of the op, then the updated arguments whose places copies of their old values have. Its outputs
    are the updated arguments, then the others.
    """

    @staticmethod
    def forward(ctx: Any, call: tuple[Asked, Update, Numbers], *inputs: torch.Tensor) -> Any:
        asked, update, own_numbers = call
        _, functional, numbers, others = asked
        scalars, passes, count = others.scalars, functional.own_passes, functional.inputs
        if passes.is_early:
            functional.prepare_backward(functional.active, numbers, scalars)
        captured = functional.capture(others.templates)
        given, targets = [*inputs[:count]], [inputs[place] for place in update.targets]
        for place, target in zip(update.updated, targets, strict=True):
            given[place] = target
        program = update.program
        arrays = program.forward(given, own_numbers, scalars)
        ctx.mark_dirty(*targets)
        ctx.asked = asked, captured
        kept = [(inputs if place < count else arrays)[place] for place in update.saved]
        marks = [] if captured is None else [functional.mark]
        ctx.save_for_backward(*marks, *kept)
        ctx.old_values = [len(marks) + update.saved.index(place) for place in update.copied]
        outputs = (*targets, *arrays[program.outputs])
        ctx.set_materialize_grads(False)
        if functional.steady_outputs:
            ctx.mark_non_differentiable(*[outputs[place] for place in functional.steady_outputs])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        gradients = EagerFunction.backward(ctx, *cotangents)
        if is_tracing():
            # Compiled autograd adds gradients without a test for None.
            return (*gradients, *[torch.zeros_like(ctx.saved_tensors[place]) for place in ctx.old_values])
        return (*gradients, *[None for _ in ctx.old_values])

    jvp = EagerFunction.jvp


def plan_update(functional: Program, program: Program, updates: Mapping[str, str]) -> Update | None:
    """Return how calls of `functional` change arguments in place by `program`; None if its gradient prevents it.

    Args:
        functional: the program of the functional op, with the gradient.
        program: the program that changes the arguments.
        updates: the updated inputs by the names of the outputs that are their new values.
    """
    passes = functional.own_passes
    # A later update would change a new value that the backward pass reads.
    if passes.has_results or not updates.keys().isdisjoint(passes.names):
        return None
    arrays = functional.signature.arrays
    updated = tuple([arrays.index(name) for name in updates.values()])
    copied = tuple([place for place in updated if arrays[place] in passes.names])
    targets = tuple([len(arrays) + copied.index(place) if place in copied else place for place in updated])
    return Update(program, updated, copied, targets, tuple([program.names.index(name) for name in passes.names]))


def _unpack(ctx: Any) -> list[Any]:
    """Return the saved tensors, the mark of Python values first if there is one. Torch's hooks run each time."""
    (_, program, _, _), captured = ctx.asked
    return [*ctx.saved_tensors] if program.own_passes.names or captured is not None else []


def _run_known(
    asked: Asked, kept: Sequence[Any], cotangents: Sequence[torch.Tensor | None], needs: tuple[bool, ...]
) -> Any:
    """Run a backward pass with the runner of an earlier one for the same `needs`."""
    _, program, numbers, others = asked
    passes, scalars = program.own_passes, others.scalars
    saved = dict(zip(passes.names, kept, strict=True)) if passes.names else _NOTHING
    try:
        gradients = program.known_runners[needs].find(numbers, scalars)(saved, cotangents, numbers, scalars)
        if type(gradients) is int:
            # An integer: this call's sizes need tapes that exceed the limit (`Program._run_backward`).
            active = program.select_active(needs[1:])
            has_results = passes.has_results and active == program.active
            gradients = program.backward(saved, cotangents, active, numbers, scalars, has_results)
    except Exception as error:
        hide_frames(error)
        raise
    return (None, *gradients)


@cache_results("functions of autograd", 1024)
def make_eager_function(op: str, function: type[torch.autograd.Function] = EagerFunction) -> Apply:
    """Return `apply` of a Function with the op's name, which profilers, `grad_fn` and anomaly mode show."""
    return get_unchecked_apply(type(op, (function,), {"__module__": __name__}))


def _check_mark(captured: CapturedValues, mark: torch.Tensor, saved: torch.Tensor) -> None:
    """Raise GradientError if the saved tensors come from a forward pass with other Python values.

    `torch.utils.checkpoint` runs the forward pass again to restore them. That pass saves its own mark, which differs if
    Python values changed in between.
    """
    # A hook may have saved the mark in another precision. Then it cannot be compared.
    if saved is not mark and saved.dtype is mark.dtype and not torch.equal(saved, mark):
        captured.check()
        raise captured.explain_mark(saved)


def _trace_backward(
    ctx: Any, cotangents: Sequence[torch.Tensor | None], needs: tuple[bool, ...]
) -> Sequence[torch.Tensor | None]:
    """Return the gradient of each input by the backward operator, while compiled autograd traces the pass."""
    (core, program, numbers, others), captured = ctx.asked
    if all([one is None for one in cotangents]):  # noqa: C419  # torch 2.6 traces lists
        return [None] * len(needs)
    call = core.make_call_with(program.key, numbers, others)
    kept, state = ctx.saved_tensors, None
    if captured is not None:
        state, *kept = kept
    pairs = zip(program.own_passes.names, kept, strict=True)
    active = call.select_active(needs)
    read = program.reverse.find_checked_reads(active)
    return call.pull_back(active, {name: one for name, one in pairs if name in read}, cotangents, state)
