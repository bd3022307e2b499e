"""The autograd Functions: how torch's differentiation reaches a plan.

`Lean` is the door for plain eager calls: no transform is active, and every microsecond
counts. `Transformed` is the same op in the form that `torch.func` asks for, with its rule
for `vmap`. `Backward` is the gradient as an op of its own, so that transforms and
`create_graph=True` see it; its own gradient is refused, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from .._errors import GradientError, refusal
from ._core import Call
from ._packing import packed_backward, packed_forward
from ._plan import Plan
from ._tracing import into_older_batch, is_older_batch, is_transformed, older_batches


class Run(Protocol):
    """What `Lean` needs to know of a call."""

    call: Call
    active: frozenset[str]

    @property
    def plan(self) -> Plan: ...

    def wanted(self, needs: tuple[bool, ...]) -> frozenset[str]: ...


class Lean(torch.autograd.Function):
    """A call in plain eager mode."""

    @staticmethod
    def forward(ctx: Any, run: Run, *inputs: torch.Tensor) -> Any:
        plan = run.plan
        places = plan.saved(run.active)
        arrays = plan.forward(inputs, run.call.scalars)
        ctx.run = run
        if places:
            ctx.save_for_backward(*[arrays[place] for place in places])
        ctx.set_materialize_grads(False)
        outputs = arrays[plan.outputs]
        if plan.integer_outputs:
            ctx.mark_non_differentiable(*[outputs[place] for place in plan.integer_outputs])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        run = ctx.run
        plan = run.plan
        active = run.wanted(ctx.needs_input_grad)
        if all([cotangent is None for cotangent in cotangents]):
            return (None,) * (1 + plan.inputs)
        saved = {plan.names[place]: tensor for place, tensor in zip(plan.saved(run.active), ctx.saved_tensors, strict=True)}
        if any([is_older_batch(cotangent) for cotangent in cotangents]):
            return (None, *older_batched_backward(run.call, active, saved, cotangents))
        if torch.is_grad_enabled() or is_transformed():
            return (None, *differentiable_backward(run.call, active, saved, cotangents))
        return (None, *plan.backward(saved, cotangents, active, run.call.scalars))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_forward_mode(ctx.run.call.core.signature.op)


class Transformed(torch.autograd.Function):
    """A call under `torch.func` transforms."""

    @staticmethod
    def forward(call: Call, *inputs: torch.Tensor) -> Any:
        return tuple(torch.ops.tinsmith.launch(*packed_forward(call, inputs)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *tensors = inputs
        names = saved_names(call, call.wanting)
        arrays = dict(zip(_all_names(call), [*tensors, *output], strict=True))
        ctx.call, ctx.names = call, names
        ctx.save_for_backward(*[arrays[name] for name in names])
        outputs = len(call.core.signature.outputs)
        untouched = [t for place, t in enumerate(output) if place >= outputs or not t.dtype.is_floating_point]
        ctx.mark_non_differentiable(*untouched)
        ctx.made = [(t.shape, t.dtype, t.device) for t in output[:outputs]]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        call = ctx.call
        names = call.core.signature.arrays
        active = frozenset(name for name, needed in zip(names, ctx.needs_input_grad[1:], strict=True) if needed)
        saved = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        given = [
            torch.zeros(shape, dtype=dtype, device=device) if cotangent is None else cotangent
            for cotangent, (shape, dtype, device) in zip(cotangents, ctx.made, strict=False)
        ]
        return (None, *differentiable_backward(call, active & call.wanting, saved, given))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_forward_mode(ctx.call.core.signature.op)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], call: Call, *inputs: torch.Tensor) -> Any:
        names = call.core.signature.arrays
        new = frozenset(name for name, dim in zip(names, in_dims[1:], strict=True) if dim is not None)
        wide, tensors = widened(info.batch_size, call, new, inputs, in_dims[1:])
        outputs = Transformed.apply(wide, *tensors)
        split = tuple(narrowed(info.batch_size, call, output) for output in outputs)
        return split, (0,) * len(split)


class Backward(torch.autograd.Function):
    """The gradient of a call, as an op: saved values and cotangents in, gradients of the active inputs out."""

    @staticmethod
    def forward(call: Call, active: frozenset[str], names: tuple[str, ...], *tensors: torch.Tensor) -> Any:
        count = len(names)
        return tuple(torch.ops.tinsmith.launch_backward(*packed_backward(call, active, tensors[:count], tensors[count:])))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call = inputs[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        raise no_second_derivative(ctx.call.core.signature.op)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_forward_mode(ctx.call.core.signature.op)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], call: Call, active: frozenset[str], names: tuple[str, ...], *tensors: torch.Tensor) -> Any:
        signature = call.core.signature
        dims = in_dims[3:]
        moved = {name for name, dim in zip(names, dims, strict=False) if dim is not None}
        new = frozenset(moved & set(signature.arrays)) | active
        made = frozenset(signature.outputs + signature.scratch)
        owners = (*names, *signature.outputs)
        wide = combined(info.batch_size, call, new)
        widths = [
            widen(info.batch_size, call, tensor, dim, owner in wide.batched or owner in made, owner in call.batched or owner in made)
            for tensor, dim, owner in zip(tensors, dims, owners, strict=True)
        ]
        gradients = Backward.apply(wide, active, names, *widths)
        split = tuple(narrowed(info.batch_size, call, gradient) for gradient in gradients)
        return split, (0,) * len(split)


def differentiable_backward(call: Call, active: frozenset[str], saved: Mapping[str, torch.Tensor], cotangents: Sequence[Any]) -> list[Any]:
    """Gradients by way of `Backward`, for every input in order, None for those not active."""
    names = saved_names(call, active)
    device = next(c.device for c in (*saved.values(), *cotangents) if c is not None)
    made = call.core.made(call)
    given = [
        torch.zeros(buffer.shape, dtype=buffer.dtype, device=device) if cotangent is None else cotangent.contiguous()
        for cotangent, buffer in zip(cotangents, made, strict=False)
    ]
    found = iter(Backward.apply(call, active, names, *[saved[name] for name in names], *given)) if active else iter(())
    return [next(found) if name in active else None for name in call.core.signature.arrays]


def older_batched_backward(call: Call, active: frozenset[str], saved: Mapping[str, torch.Tensor], cotangents: Sequence[Any]) -> list[Any]:
    """Gradients for cotangents that are batches of torch's older vmap, in one launch as well."""
    level, whole, dims = older_batches(cotangents)
    size = next(tensor.shape[0] for tensor, dim in zip(whole, dims, strict=True) if dim is not None)
    device = next(tensor.device for tensor in whole if tensor is not None)
    given = [
        torch.zeros(buffer.shape, dtype=buffer.dtype, device=device) if tensor is None else tensor
        for tensor, buffer in zip(whole, call.core.made(call), strict=False)
    ]
    names = saved_names(call, active)
    in_dims = (None, None, None, *(None for _ in names), *dims)
    split, _ = Backward.vmap(_Info(size), in_dims, call, active, names, *[saved[name] for name in names], *given)
    found = iter([into_older_batch(gradient, level) for gradient in split])
    return [next(found) if name in active else None for name in call.core.signature.arrays]


class _Info(NamedTuple):
    """What torch tells a vmap rule."""

    batch_size: int


def saved_names(call: Call, active: frozenset[str]) -> tuple[str, ...]:
    """Arrays whose values the backward pass reads, in the order of all arrays."""
    reverse = call.core.reverse
    reverse.check(active)
    read = reverse.reads(active)
    return tuple(name for name in _all_names(call) if name in read)


# Batches --------------------------------------------------------------------------------------
def widened(size: int, call: Call, new: frozenset[str], tensors: Sequence[torch.Tensor], dims: Sequence[Any]) -> tuple[Call, list[torch.Tensor]]:
    """A call over one more batch dimension, and its inputs with the flat batch dimension in front."""
    wide = combined(size, call, new)
    names = call.core.signature.arrays
    moved = [
        widen(size, call, tensor, dim, name in wide.batched, name in call.batched)
        for name, tensor, dim in zip(names, tensors, dims, strict=True)
    ]
    return wide, moved


def combined(size: int, call: Call, new: frozenset[str]) -> Call:
    """The call over a batch that is `size` times the one it may have already."""
    return call.with_batch(size * (1 if call.batch is None else call.batch), new | call.batched)


def widen(size: int, call: Call, tensor: torch.Tensor, dim: int | None, is_wide: bool, is_old: bool) -> torch.Tensor:
    """A tensor with its new batch dimension in front, merged with the one it may have already."""
    if not is_wide:
        return tensor
    moved = tensor.movedim(dim, 0) if dim is not None else tensor.expand(size, *tensor.shape)
    if call.batch is None:
        return moved.contiguous()
    if not is_old:
        moved = moved.unsqueeze(1).expand(size, call.batch, *moved.shape[1:])
    return moved.reshape(size * call.batch, *moved.shape[2:]).contiguous()


def narrowed(size: int, call: Call, tensor: torch.Tensor) -> torch.Tensor:
    """A result's flat batch dimension taken apart again."""
    return tensor if call.batch is None else tensor.reshape(size, call.batch, *tensor.shape[1:])


# Refusals -------------------------------------------------------------------------------------
def no_forward_mode(op: str) -> GradientError:
    return GradientError(
        refusal(
            f"op `{op}` has no forward-mode derivative (jvp)",
            remedy="Use reverse mode: torch.func.vjp, grad or jacrev instead of jvp, jacfwd or hessian.",
        )
    )


def no_second_derivative(op: str) -> GradientError:
    return GradientError(
        refusal(
            f"op `{op}` has no second derivative",
            remedy="Take first derivatives only (no create_graph=True around this op, no hessian).",
        )
    )


def _all_names(call: Call) -> tuple[str, ...]:
    signature = call.core.signature
    return signature.arrays + signature.outputs + signature.scratch
