"""The second door: the op as a registered operator, for whoever traces instead of running.

`torch.compile`, fake tensors, `make_fx` and tensor subclasses never see a Python function;
they see `torch.ops.tinsmith.launch`, one operator for all ops, told apart by a handle, and
`torch.ops.tinsmith.launch_backward` in their backward graphs. A call travels as a handle and
numbers; here they become a `Call` again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.library import Library, register_fake, register_vmap

from ._batches import backward_over_batch, forward_over_batch
from ._binding import Bound
from ._core import Call, Core
from ._gradients import all_names, saved_names, undifferentiated
from ._packing import backward_call, forward_call, packed_backward, packed_forward, unpacked
from ._route import Route, route
from ._stage import changed_between
from ._tracing import SingleLevelFunction, apply_at_one_level, one_level_down
from .derived import SecondOrder, pushed_forward

_LIBRARY = Library("tinsmith", "DEF")
_CALL = "Scalar[] numbers, SymInt[] sizes, SymInt batch, int[] batched, bool is_apart"
_LIBRARY.define(f"launch(int handle, Tensor[] inputs, {_CALL}) -> Tensor[]")
_LIBRARY.define(
    "launch_backward(int handle, Tensor[] saved, Tensor[] cotangents, int[] active, int[] given, "
    f"SymInt[] shapes, int[] ranks, int[] dtypes, {_CALL}) -> Tensor[]"
)


# The forward operator -------------------------------------------------------------------------
def _device_of(call: Call, tensors: Sequence[torch.Tensor]) -> torch.device:
    return tensors[0].device if tensors else torch.device(call.core.device_type())


def _launch(handle: int, inputs: Sequence[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
    call = forward_call(handle, inputs, rest)
    ready = [tensor.contiguous().resolve_neg() for tensor in inputs]
    return call.plan(_device_of(call, ready)).forward(ready, call.scalars)[len(ready) :]


def _launch_fake(handle: int, inputs: Sequence[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
    call = forward_call(handle, inputs, rest)
    device = _device_of(call, inputs)
    return [torch.empty(buffer.shape, dtype=buffer.dtype, device=device) for buffer in call.core.made(call)]


class _Launch(SingleLevelFunction):
    """The gradient of `launch`, for autograd's own dispatch key: transforms are taken care of above it."""

    @staticmethod
    def forward(ctx: Any, handle: int, rest: Sequence[Any], *inputs: torch.Tensor) -> Any:
        call = forward_call(handle, inputs, rest)
        with one_level_down():
            outputs = torch.ops.tinsmith.launch(handle, list(inputs), *rest)
        names = saved_names(call, call.wanted(ctx.needs_input_grad[2:]))
        arrays = dict(zip(all_names(call), (*inputs, *outputs), strict=True))
        ctx.call, ctx.names = call, names
        ctx.pictures = call.core.fingerprints(call.templates)
        ctx.contents = [look.contents() for look in call.core.contents.looks(ctx.pictures)]
        ctx.save_for_backward(*[arrays[name] for name in names])
        ctx.save_for_forward(*inputs)
        ctx.mark_non_differentiable(*undifferentiated(call, outputs))
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        call = ctx.call
        if ctx.pictures != call.core.fingerprints(call.templates):
            raise changed_between(call.core.signature.op)
        for contents in ctx.contents:
            contents.check()
        active = call.wanted(ctx.needs_input_grad[2:])
        values = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        saved = [values[name] for name in saved_names(call, active)]
        given = cotangents[: len(call.core.signature.outputs)]
        if all([cotangent is None for cotangent in given]):  # noqa: C419  # as in the other door
            return (None,) * len(ctx.needs_input_grad)
        found = torch.ops.tinsmith.launch_backward(*packed_backward(call, active, saved, given))
        return (None, None, *call.by_input(active, found))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tuple(pushed_forward(ctx.call, ctx.saved_tensors, tangents[2:]))


class _LaunchBackward(SingleLevelFunction):
    """The derivatives of `launch_backward`: of a gradient in what was saved, and in cotangents."""

    @staticmethod
    def forward(ctx: Any, arguments: Sequence[Any], *tensors: torch.Tensor) -> Any:
        handle, count, given = arguments
        ctx.asked = backward_call(handle, given)
        ctx.count = count
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)
        with one_level_down():
            return tuple(
                torch.ops.tinsmith.launch_backward(handle, list(tensors[:count]), list(tensors[count:]), *given)
            )

    @staticmethod
    def backward(ctx: Any, *directions: torch.Tensor | None) -> Any:
        saved, given = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        found = SecondOrder(ctx.asked, saved, given).pulled_back(directions, ctx.needs_input_grad[1:])
        return (None, *found)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        saved, given = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        moved = tangents[1:]
        second = SecondOrder(ctx.asked, saved, given)
        return tuple(second.pushed_forward(moved[: ctx.count], moved[ctx.count :]))


def _launch_autograd(handle: int, inputs: Sequence[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
    return list(apply_at_one_level(_Launch, handle, rest, *inputs))


def _launch_vmap(info: Any, in_dims: Any, handle: int, inputs: Sequence[torch.Tensor], *rest: Any) -> Any:
    dims = in_dims[1]
    shapes = [_without(tensor, dim) for tensor, dim in zip(inputs, dims, strict=True)]
    call = unpacked(handle, shapes, [tensor.dtype for tensor in inputs], rest)
    return _first_dims(forward_over_batch(info.batch_size, call, inputs, dims))


def _first_dims(results: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[int]]:
    return results, [0] * len(results)


def _without(tensor: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    return tuple(size for place, size in enumerate(tensor.shape) if place != dim)


# The backward operator ------------------------------------------------------------------------
def _backward(
    handle: int, saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], *given: Any
) -> list[torch.Tensor]:
    call, active, outputs = backward_call(handle, given)
    values = dict(zip(saved_names(call, active), [tensor.contiguous() for tensor in saved], strict=True))
    plan = call.plan(_device_of(call, cotangents))
    ready = dict(zip(outputs, [tensor.contiguous() for tensor in cotangents], strict=True))
    found = plan.backward(values, [ready.get(n) for n in call.core.signature.outputs], active, call.scalars)
    return [gradient for gradient in found if gradient is not None]


def _backward_fake(
    handle: int, _: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], *given: Any
) -> list[torch.Tensor]:
    call, active = backward_call(handle, given)[:2]
    lead = (call.batch,) if call.batch is not None else ()
    return [
        cotangents[0].new_empty((lead if name in call.batched else ()) + shape, dtype=dtype)
        for name, shape, dtype in zip(call.core.signature.arrays, call.shapes, call.dtypes, strict=True)
        if name in active
    ]


def _backward_autograd(
    handle: int, saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], *given: Any
) -> list[torch.Tensor]:
    return list(apply_at_one_level(_LaunchBackward, (handle, len(saved), given), *saved, *cotangents))


def _backward_vmap(
    info: Any, in_dims: Any, handle: int, saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], *given: Any
) -> Any:
    asked = backward_call(handle, given)
    dims = [*in_dims[1], *in_dims[2]]
    return _first_dims(backward_over_batch(info.batch_size, asked, [*saved, *cotangents], dims))


for _name, _run, _fake, _autograd, _vmap in (
    ("launch", _launch, _launch_fake, _launch_autograd, _launch_vmap),
    ("launch_backward", _backward, _backward_fake, _backward_autograd, _backward_vmap),
):
    _LIBRARY.impl(_name, _run, "CompositeExplicitAutograd")
    _LIBRARY.impl(_name, _autograd, "Autograd")
    register_fake(f"tinsmith::{_name}", _fake, lib=_LIBRARY)
    register_vmap(f"tinsmith::{_name}", _vmap, lib=_LIBRARY)


# Calling it -----------------------------------------------------------------------------------
def traced(core: Core, bound: Bound) -> list[torch.Tensor]:
    """A call while tracing: the outputs."""
    return dispatched(core, bound, route(core, bound, is_traced=True))


def dispatched(core: Core, bound: Bound, found: Route) -> list[torch.Tensor]:
    """A call through the operator."""
    tensors = bound.tensors if found.is_prepared else found.prepare(bound.tensors)
    call = found.with_scalars(bound) if bound.scalars else found.call
    outputs = torch.ops.tinsmith.launch(*packed_forward(call, tensors))[: len(core.signature.outputs)]
    return list(outputs) if found.is_finished else found.finish(outputs)
