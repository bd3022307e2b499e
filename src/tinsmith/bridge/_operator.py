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

from ._binding import Bound, bind
from ._core import Call, Core
from ._function import Backward, Transformed, no_forward_mode, saved_names
from ._packing import backward_call, forward_call, packed_forward, unpacked
from ._route import Route, route
from ._tracing import below_autograd, has_forward_mode

_LIBRARY = Library("tinsmith", "DEF")
_CALL = "Scalar[] numbers, SymInt[] sizes, SymInt batch, int[] batched"
_LIBRARY.define(f"launch(int handle, Tensor[] inputs, {_CALL}) -> Tensor[]")
_LIBRARY.define(
    "launch_backward(int handle, Tensor[] saved, Tensor[] cotangents, int[] active, "
    f"SymInt[] shapes, int[] ranks, int[] dtypes, {_CALL}) -> Tensor[]"
)


# The forward operator -------------------------------------------------------------------------
def _device_of(call: Call, tensors: Sequence[torch.Tensor]) -> torch.device:
    return tensors[0].device if tensors else torch.device(call.core.signature.stages[0].engine.device_type())


def _launch(handle: int, inputs: Sequence[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
    call = forward_call(handle, inputs, rest)
    ready = [tensor.contiguous().resolve_neg() for tensor in inputs]
    return call.plan(_device_of(call, ready)).forward(ready, call.scalars)[len(ready) :]


def _launch_fake(handle: int, inputs: Sequence[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
    call = forward_call(handle, inputs, rest)
    device = _device_of(call, inputs)
    return [torch.empty(buffer.shape, dtype=buffer.dtype, device=device) for buffer in call.core.made(call)]


def _launch_autograd(handle: int, inputs: Sequence[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return list(Transformed.apply(forward_call(handle, inputs, rest), *inputs))
    with below_autograd():
        return torch.ops.tinsmith.launch(handle, inputs, *rest)


def _launch_vmap(info: Any, in_dims: Any, handle: int, inputs: Sequence[torch.Tensor], *rest: Any) -> Any:
    dims = in_dims[1]
    shapes = [_without(tensor, dim) for tensor, dim in zip(inputs, dims, strict=True)]
    call = unpacked(handle, shapes, [tensor.dtype for tensor in inputs], rest)
    outputs, out_dims = Transformed.vmap(info, (None, *dims), call, *inputs)
    return list(outputs), list(out_dims)


def _without(tensor: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    return tuple(size for place, size in enumerate(tensor.shape) if place != dim)


# The backward operator ------------------------------------------------------------------------
def _backward(handle: int, saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], *given: Any) -> list[torch.Tensor]:
    call, active = backward_call(handle, given)
    values = dict(zip(saved_names(call, active), [tensor.contiguous() for tensor in saved], strict=True))
    plan = call.plan(_device_of(call, cotangents))
    found = plan.backward(values, [tensor.contiguous() for tensor in cotangents], active, call.scalars)
    return [gradient for gradient in found if gradient is not None]


def _backward_fake(handle: int, saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], *given: Any) -> list[torch.Tensor]:
    call, active = backward_call(handle, given)
    lead = (call.batch,) if call.batch is not None else ()
    return [
        cotangents[0].new_empty((lead if name in call.batched else ()) + shape, dtype=dtype)
        for name, shape, dtype in zip(call.core.signature.arrays, call.shapes, call.dtypes, strict=True)
        if name in active
    ]


def _backward_autograd(handle: int, saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], *given: Any) -> list[torch.Tensor]:
    tensors = [*saved, *cotangents]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        call, active = backward_call(handle, given)
        return list(Backward.apply(call, active, saved_names(call, active), *tensors))
    with below_autograd():
        return torch.ops.tinsmith.launch_backward(handle, saved, cotangents, *given)


def _backward_vmap(info: Any, in_dims: Any, handle: int, saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], *given: Any) -> Any:
    call, active = backward_call(handle, given)
    dims = (None, None, None, *in_dims[1], *in_dims[2])
    gradients, out_dims = Backward.vmap(info, dims, call, active, saved_names(call, active), *saved, *cotangents)
    return list(gradients), list(out_dims)


for _name, _run, _fake, _autograd, _vmap in (
    ("launch", _launch, _launch_fake, _launch_autograd, _launch_vmap),
    ("launch_backward", _backward, _backward_fake, _backward_autograd, _backward_vmap),
):
    _LIBRARY.impl(_name, _run, "CompositeExplicitAutograd")
    _LIBRARY.impl(_name, _autograd, "Autograd")
    register_fake(f"tinsmith::{_name}", _fake, lib=_LIBRARY)
    register_vmap(f"tinsmith::{_name}", _vmap, lib=_LIBRARY)


# Calling it -----------------------------------------------------------------------------------
def traced(core: Core, arguments: Sequence[Any], named: dict[str, Any]) -> list[torch.Tensor]:
    """A call while tracing: the outputs."""
    bound = bind(core.signature, arguments, named)
    return dispatched(core, bound, route(core, bound, is_traced=True))


def dispatched(core: Core, bound: Bound, found: Route) -> list[torch.Tensor]:
    """A call through the operator."""
    if has_forward_mode():
        raise no_forward_mode(core.signature.op)
    tensors = bound.tensors if found.is_prepared else found.prepare(bound.tensors)
    outputs = torch.ops.tinsmith.launch(*packed_forward(found.call, tensors))[: len(core.signature.outputs)]
    return list(outputs) if found.is_finished else found.finish(outputs)
