"""The second door: the op as a registered operator, for whoever traces instead of running.

`torch.compile`, fake tensors, `make_fx` and tensor subclasses never see a Python function;
they see `torch.ops.tinsmith.launch`, one operator for all ops, told apart by a handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..engines import DTYPES
from ._binding import Bound, bind
from ._core import Call, Core
from ._function import combined, no_forward_mode, no_second_derivative, saved_names, widen
from ._route import Route, route
from ._tracing import has_forward_mode

_CORES: list[Core] = []
_DTYPES = tuple(DTYPES.values())  # an operator's schema knows no list of dtypes: they travel as places in this one
Numbers = Sequence[int | float | bool]


def register(core: Core) -> int:
    """The handle by which traced graphs call an op. Graphs may outlive the op, so it is kept."""
    _CORES.append(core)
    return len(_CORES) - 1


# The operator ---------------------------------------------------------------------------------
@torch.library.custom_op("tinsmith::launch", mutates_args=())
def launch(
    handle: int, inputs: Sequence[torch.Tensor], scalars: Numbers, sizes: Sequence[int], batch: int, batched: Sequence[int]
) -> list[torch.Tensor]:
    call = _call(handle, [tuple(t.shape) for t in inputs], [t.dtype for t in inputs], scalars, sizes, batch, batched)
    ready = [tensor.contiguous().resolve_neg() for tensor in inputs]
    device = ready[0].device if ready else torch.device(call.core.signature.stages[0].engine.device_type())
    return call.plan(device).forward(ready, call.scalars)[len(ready) :]


@launch.register_fake
def _(handle: Any, inputs: Any, scalars: Any, sizes: Any, batch: Any, batched: Any) -> list[torch.Tensor]:
    call = _call(handle, [tuple(t.shape) for t in inputs], [t.dtype for t in inputs], scalars, sizes, batch, batched)
    device = inputs[0].device if inputs else torch.device(call.core.signature.stages[0].engine.device_type())
    return [torch.empty(buffer.shape, dtype=buffer.dtype, device=device) for buffer in call.core.made(call)]


@torch.library.custom_op("tinsmith::launch_backward", mutates_args=())
def launch_backward(
    handle: int,
    active: Sequence[int],
    saved: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
    shapes: Sequence[int],
    ranks: Sequence[int],
    dtypes: Sequence[int],
    scalars: Numbers,
    sizes: Sequence[int],
    batch: int,
    batched: Sequence[int],
) -> list[torch.Tensor]:
    call, wanted = _backward_call(handle, active, shapes, ranks, dtypes, scalars, sizes, batch, batched)
    values = dict(zip(saved_names(call, wanted), [t.contiguous() for t in saved], strict=True))
    plan = call.plan(cotangents[0].device)
    found = plan.backward(values, [c.contiguous() for c in cotangents], wanted, call.scalars)
    return [gradient for gradient in found if gradient is not None]


@launch_backward.register_fake
def _(handle: Any, active: Any, saved: Any, cotangents: Any, shapes: Any, ranks: Any, dtypes: Any, scalars: Any, sizes: Any, batch: Any, batched: Any) -> list[torch.Tensor]:
    call, wanted = _backward_call(handle, active, shapes, ranks, dtypes, scalars, sizes, batch, batched)
    names = call.core.signature.arrays
    return [
        cotangents[0].new_empty(((call.batch,) if name in call.batched else ()) + shape, dtype=dtype)
        for name, shape, dtype in zip(names, call.shapes, call.dtypes, strict=True)
        if name in wanted
    ]


def _call(handle: int, shapes: Sequence[Any], dtypes: Sequence[Any], scalars: Any, sizes: Any, batch: int, batched: Sequence[int]) -> Call:
    core = _CORES[handle]
    signature = core.signature
    flags = frozenset(signature.arrays[place] for place in batched)
    cores = tuple(shape[1:] if name in flags else shape for name, shape in zip(signature.arrays, shapes, strict=True))
    named = dict(zip(signature.size_names, sizes, strict=True))
    return Call(core, cores, tuple(dtypes), _unflattened(core, scalars), {}, named, None if batch < 0 else batch, flags)


def _backward_call(handle: int, active: Sequence[int], shapes: Any, ranks: Any, dtypes: Any, *rest: Any) -> tuple[Call, frozenset[str]]:
    split, start = [], 0
    for rank in ranks:
        split.append(tuple(shapes[start : start + rank]))
        start += rank
    call = _call(handle, split, [_DTYPES[code] for code in dtypes], *rest)
    return call, frozenset(call.core.signature.arrays[place] for place in active)


def _flattened(core: Core, scalars: Any) -> list[Any]:
    flat: list[Any] = []
    for name in core.signature.scalars:
        value = scalars[name]
        flat.extend(value if isinstance(value, tuple) else [value])
    return flat


def _unflattened(core: Core, flat: Sequence[Any]) -> dict[str, Any]:
    values, rest = {}, list(flat)
    for name in core.signature.scalars:
        parameter = core.signature.parameters(name)[0]
        count = 1
        for size in parameter.element:
            count *= size
        values[name] = rest[0] if parameter.kind == "scalar" else tuple(rest[:count])
        rest = rest[count:]
    return values


# Its gradient ---------------------------------------------------------------------------------
def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    handle, tensors, scalars, sizes, batch, batched = inputs
    shapes = [tuple(t.shape) for t in tensors]
    call = _call(handle, shapes, [t.dtype for t in tensors], scalars, sizes, batch, batched)
    names = call.core.signature
    arrays = dict(zip(names.arrays + names.outputs + names.scratch, [*tensors, *output], strict=True))
    ctx.call, ctx.rest = call, (scalars, sizes, batch, batched)
    ctx.handle, ctx.shapes, ctx.dtypes = handle, shapes, [_DTYPES.index(t.dtype) for t in tensors]
    ctx.active = [i for i, t in enumerate(tensors) if t.requires_grad and t.dtype.is_floating_point]
    ctx.device = tensors[0].device if tensors else None
    ctx.save_for_backward(*[arrays[name] for name in saved_names(call, _named(call, ctx.active))])


def _named(call: Call, places: Sequence[int]) -> frozenset[str]:
    return frozenset(call.core.signature.arrays[place] for place in places)


def _backward(ctx: Any, cotangents: Sequence[Any]) -> Any:
    call = ctx.call
    outputs = call.core.made(call)[: len(call.core.signature.outputs)]
    given = [
        torch.zeros(buffer.shape, dtype=buffer.dtype, device=ctx.device) if cotangent is None else cotangent
        for buffer, cotangent in zip(outputs, cotangents, strict=False)
    ]
    flat = [size for shape in ctx.shapes for size in shape]
    ranks = [len(shape) for shape in ctx.shapes]
    found = launch_backward(ctx.handle, ctx.active, ctx.saved_tensors, given, flat, ranks, ctx.dtypes, *ctx.rest)
    gradients: list[Any] = [None] * len(ctx.shapes)
    for place, gradient in zip(ctx.active, found, strict=True):
        gradients[place] = gradient
    scalars, sizes, _, batched = ctx.rest
    return None, gradients, [None] * len(scalars), [None] * len(sizes), None, [None] * len(batched)


launch.register_autograd(_backward, setup_context=_setup)


def _setup_refusal(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.handle = inputs[0]


def _refuse_second(ctx: Any, *cotangents: Any) -> Any:
    raise no_second_derivative(_CORES[ctx.handle].signature.op)


launch_backward.register_autograd(_refuse_second, setup_context=_setup_refusal)


# Batches --------------------------------------------------------------------------------------
@launch.register_vmap
def _(info: Any, in_dims: Any, handle: int, inputs: Any, scalars: Any, sizes: Any, batch: int, batched: Any) -> Any:
    dims = in_dims[1]
    shapes = [_without(t, dim) for t, dim in zip(inputs, dims, strict=True)]
    call = _call(handle, shapes, [t.dtype for t in inputs], scalars, sizes, batch, batched)
    names = call.core.signature.arrays
    wide = combined(info.batch_size, call, frozenset(n for n, dim in zip(names, dims, strict=True) if dim is not None))
    moved = [
        widen(info.batch_size, call, t, dim, name in wide.batched, name in call.batched)
        for name, t, dim in zip(names, inputs, dims, strict=True)
    ]
    outputs = launch(handle, moved, scalars, sizes, wide.batch, _places(wide))
    return _split(info.batch_size, call, outputs)


@launch_backward.register_vmap
def _(info: Any, in_dims: Any, handle: int, active: Any, saved: Any, cotangents: Any, shapes: Any, ranks: Any, dtypes: Any, scalars: Any, sizes: Any, batch: int, batched: Any) -> Any:
    call, wanted = _backward_call(handle, active, shapes, ranks, dtypes, scalars, sizes, batch, batched)
    signature = call.core.signature
    owners = (*saved_names(call, wanted), *signature.outputs)
    made = frozenset(signature.outputs + signature.scratch)
    dims = (*in_dims[2], *in_dims[3])
    moved = {owner for owner, dim in zip(owners, dims, strict=True) if dim is not None}
    wide = combined(info.batch_size, call, frozenset(moved & set(signature.arrays)) | wanted)
    tensors = [
        widen(info.batch_size, call, t, dim, owner in wide.batched or owner in made, owner in call.batched or owner in made)
        for t, dim, owner in zip((*saved, *cotangents), dims, owners, strict=True)
    ]
    cores = [((wide.batch,) if n in wide.batched else ()) + s for n, s in zip(signature.arrays, wide.shapes, strict=True)]
    found = launch_backward(
        handle,
        active,
        tensors[: len(saved)],
        tensors[len(saved) :],
        [size for core in cores for size in core],
        [len(core) for core in cores],
        dtypes,
        scalars,
        sizes,
        wide.batch,
        _places(wide),
    )
    return _split(info.batch_size, call, found)


def _without(tensor: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    shape = list(tensor.shape)
    if dim is not None:
        del shape[dim]
    return tuple(shape)


def _places(call: Call) -> list[int]:
    return [place for place, name in enumerate(call.core.signature.arrays) if name in call.batched]


def _split(size: int, call: Call, outputs: Sequence[torch.Tensor]) -> Any:
    shaped = [t if call.batch is None else t.reshape(size, call.batch, *t.shape[1:]) for t in outputs]
    return shaped, [0] * len(shaped)


# Calling it -----------------------------------------------------------------------------------
def traced(core: Core, handle: int, arguments: Sequence[Any], named: dict[str, Any]) -> list[torch.Tensor]:
    """A call while tracing: the outputs."""
    bound = bind(core.signature, arguments, named)
    return dispatched(core, handle, bound, route(core, bound, is_traced=True))


def dispatched(core: Core, handle: int, bound: Bound, found: Route) -> list[torch.Tensor]:
    """A call through the operator."""
    if has_forward_mode():
        raise no_forward_mode(core.signature.op)
    call = found.call
    tensors = bound.tensors if found.is_prepared else found.prepare(bound.tensors)
    sizes = [bound.sizes[name] for name in core.signature.size_names]
    batch = -1 if call.batch is None else call.batch
    outputs = launch(handle, list(tensors), _flattened(core, bound.scalars), sizes, batch, _places(call))
    wanted = outputs[: len(core.signature.outputs)]
    return list(wanted) if found.is_finished else found.finish(wanted)
