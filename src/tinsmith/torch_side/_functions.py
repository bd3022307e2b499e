"""The autograd rules of an op's operators, called at autograd's dispatch key; transforms are handled above it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._errors import GradientError, refusal
from ..calls import BackwardCall, Call, Signature
from ..calls.derived import SecondOrder, push_forward
from ..tracing import SingleLevelFunction, dispatch_below_autograd, has_modes, is_tracing, is_transformed

Run = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
"""Calls an operator whose other arguments are bound already, with tensors."""


class Launch(SingleLevelFunction):
    """The autograd Function of a forward operator."""

    @staticmethod
    def forward(ctx: Any, call: Call, run: Run, *inputs: torch.Tensor) -> Any:
        core = call.core
        with dispatch_below_autograd():
            results = run(inputs)
        count = len(core.signature.allocations)
        state = results[count:]
        ctx.mark_non_differentiable(*_select_nondifferentiable(core.signature, results[:count]), *state)
        call, more = core.get_derivative_call(call, results[:count])
        needs = (*ctx.needs_input_grad[2:], *[False] * len(more))
        names = call.find_saved_names(call.select_active(needs))
        values = (*inputs, *more, *results[: count - len(more)])
        arrays = dict(zip(call.core.signature.all_arrays, values, strict=True))
        ctx.call, ctx.names, ctx.states, ctx.more = call, names, len(state), len(more)
        ctx.records = (
            dict(zip(call.core.signature.arrays[len(inputs) :], more, strict=True)) if _have_memory(more) else {}
        )
        ctx.save_for_backward(*[arrays[name] for name in names], *state)
        ctx.save_for_forward(*inputs, *more, *state)
        ctx.state = state[-1] if state else None
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        call = ctx.call
        active = call.select_active((*ctx.needs_input_grad[2:], *[False] * ctx.more))
        cotangents = cotangents[: len(call.core.signature.outputs)]
        if all([one is None for one in cotangents]):  # noqa: C419  # torch 2.6 traces lists
            return (None,) * len(ctx.needs_input_grad)
        kept = ctx.saved_tensors
        values = dict(zip(ctx.names, kept[: len(ctx.names)], strict=True))
        _check_records(call, ctx.records, values)
        saved = {name: values[name] for name in call.find_saved_names(active)}
        # The state of the first forward pass, if it is a real tensor. After `torch.utils.checkpoint` has run that pass
        # again, the saved state is that of the second run.
        state = None
        if ctx.states:
            state = ctx.state if _have_memory([ctx.state]) else kept[-1]
        gradients = call.pull_back(active, saved, cotangents, state)
        return (None, None, *gradients[: len(ctx.needs_input_grad) - 2])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        none = [None] * ctx.more
        kept = ctx.saved_tensors
        inputs, state = (kept[:-1], kept[-1]) if ctx.states else (kept, None)
        moved = push_forward(ctx.call, inputs, (*tangents[2:], *none), state)
        return (*moved, *none, *[None] * ctx.states)


def _select_nondifferentiable(signature: Signature, made: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the outputs and scratch that have no gradient: integers, detached or auxiliary outputs, and all scratch.

    `made` are the tensors of outputs and scratch.
    """
    without = signature.detached | signature.auxiliary | frozenset(signature.scratch)
    pairs = zip(signature.allocations, made, strict=True)
    return [tensor for name, tensor in pairs if name in without or not tensor.dtype.is_floating_point]


def _have_memory(tensors: Sequence[torch.Tensor]) -> bool:
    """Return True if the tensors' values can be compared: no tracer, transform or mode is active, and all are plain."""
    if is_tracing() or is_transformed() or has_modes():
        return False
    return all(type(one) is torch.Tensor for one in tensors)


def _check_records(call: Call, records: Mapping[str, torch.Tensor], saved: Mapping[str, torch.Tensor]) -> None:
    """Refuse the gradient if a repeated forward pass recorded other results of its atomics than the first run.

    The cotangents belong to the indices that the atomics of the first run returned.
    """
    again = [saved[name] for name in records if name in saved]
    if not _have_memory(again):
        return
    for name, first in records.items():
        if name in saved and not torch.equal(first, saved[name].to(first.device)):
            op = call.core.signature.op
            words = f"op `{op}` was run again for its backward pass, and its atomics returned other indices"
            remedy = "Leave the op out of what `torch.utils.checkpoint` runs again."
            raise GradientError(refusal(words, remedy=remedy))


class LaunchBackward(SingleLevelFunction):
    """The autograd Function of a backward operator: differentiates gradients by the saved values and the cotangents."""

    @staticmethod
    def forward(ctx: Any, asked: BackwardCall, run: Run, *tensors: torch.Tensor) -> Any:
        ctx.asked = asked
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)
        with dispatch_below_autograd():
            return tuple(run(tensors))

    @staticmethod
    def _get_second_order(ctx: Any) -> SecondOrder:
        """Return the second derivatives of the call, from the tensors that autograd saved.

        These tensors, unlike those that the operator got, have been checked for changes and belong to the right levels.
        """
        asked, tensors = ctx.asked, iter(ctx.saved_tensors)
        saved = {name: next(tensors) for name in asked.saved}
        cotangents = {name: next(tensors) for name in asked.cotangents}
        return SecondOrder(asked._replace(saved=saved, cotangents=cotangents))

    @staticmethod
    def backward(ctx: Any, *directions: torch.Tensor | None) -> Any:
        gradients = LaunchBackward._get_second_order(ctx).pull_back(directions, ctx.needs_input_grad[2:])
        return (None, None, *gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        moved = tangents[2:]
        count = len(ctx.asked.saved)
        return tuple(LaunchBackward._get_second_order(ctx).push_forward(moved[:count], moved[count:]))
