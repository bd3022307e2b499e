"""Calls with DTensors: each process runs the op on its shard.

Each dim of the device mesh shards at most one dim of the op: the one by which most elements are already sharded.
Arrays without that dim are replicated, and their gradient is a sum over processes, which torch computes when needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .._errors import ArgumentError, DeviceError, refusal
from ..calls import BoundArguments, Call, Core, make_checked_call
from ..tracing import is_distributed

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Run = Callable[[BoundArguments], Sequence[torch.Tensor]]
"""Runs the op on local tensors, the shards of one process."""


def call_distributed(core: Core, bound: BoundArguments, run: Run) -> list[torch.Tensor]:
    """Call an op with DTensors. Return the outputs and scratch as DTensors, then what else `run` returns, as it is.

    `run` computes outputs, scratch and further results from the shards of this process.
    """
    _check_tensors(core, bound.tensors)
    call = make_checked_call(core, bound)
    axes = _find_axes(call, core.operators.shares(call.dtypes))
    mesh = bound.tensors[0].device_mesh
    given = dict(zip(core.signature.arrays, bound.tensors, strict=True))
    chosen = _choose_dims(given, axes)
    outputs = run(bound.with_tensors(tuple([_get_shard(tensor, name, axes, chosen) for name, tensor in given.items()])))
    made = call.finish([torch.empty(one.shape, device="meta") for one in core.plan_buffers(call)])
    names = core.signature.allocations
    pairs = zip(names, outputs, made, strict=False)
    shared = [_join_shards(one, mesh, _choose_placements(name, axes, chosen), whole) for name, one, whole in pairs]
    return [*shared, *outputs[len(shared) :]]


def run_on_parts(
    run: Callable[..., torch.Tensor],
    tensors: Mapping[str, Any],
    axes: Mapping[str, Mapping[str, int]],
    shape: Sequence[int],
) -> torch.Tensor:
    """Run a function on this process's shard of each DTensor. Return its result as a DTensor.

    Args:
        run: the function, called with a local tensor for each name.
        tensors: DTensors on one mesh.
        axes: for each dim that may be sharded, its axis in each tensor that has it and in the result. Tensors without
            the dim are replicated. The result's name is "".
        shape: the shape of the whole result.
    """
    chosen = _choose_dims(tensors, axes)
    made = run(**{name: _get_shard(tensor, name, axes, chosen) for name, tensor in tensors.items()})
    mesh = next(iter(tensors.values())).device_mesh
    whole = torch.empty(torch.Size(shape), device="meta")
    return _join_shards(made, mesh, _choose_placements("", axes, chosen), whole)


def _join_shards(shard: torch.Tensor, mesh: Any, placements: Sequence[Any], whole: torch.Tensor) -> DTensor:
    """Return the DTensor of which this process has a shard; `whole` has its shape and strides."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(shard, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


def _find_axes(call: Call, shared: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> dict[str, Mapping[str, int]]:
    """Return, for each dim of the op that may be sharded, its axis in each array that has it.

    Batch dims are named by their number: "0", "1".
    """
    signature = call.core.signature
    lead = len(call.lead)
    made = signature.allocations
    batched = [name for name in (*signature.arrays, *made) if lead and (name in made or name in call.batched)]
    axes_by_dim: dict[str, Mapping[str, int]] = {str(axis): dict.fromkeys(batched, axis) for axis in range(lead)}
    for dim, axes in shared:
        axes_by_dim[dim] = {name: axis + lead * (name in batched) for name, axis in axes}
    return axes_by_dim


def _check_tensors(core: Core, tensors: Sequence[torch.Tensor]) -> None:
    from torch.distributed.tensor import DTensor

    op = core.signature.op
    if core.is_seeded:
        words = f"op `{op}` draws random numbers, so it cannot run on DTensors: each process would draw its own"
        raise ArgumentError(refusal(words, remedy="Call it on each process's own part: `x.to_local()`."))
    meshes = []
    for name, tensor in zip(core.signature.arrays, tensors, strict=True):
        if not isinstance(tensor, DTensor):
            words = f"tensor `{name}` of op `{op}` is not a DTensor, and other tensors of the call are"
            remedy = f"Pass `distribute_tensor({name}, mesh, [Replicate()])`."
            raise ArgumentError(refusal(words, [(name, type(tensor).__name__)], remedy))
        meshes.append(tensor.device_mesh)
    if any(mesh != meshes[0] for mesh in meshes):
        raise ArgumentError(
            refusal(f"the tensors of op `{op}` are on different meshes", remedy="Put them on one mesh.")
        )
    if meshes[0].device_type != core.device_type():
        words = f"op `{op}` got tensors on a mesh of {meshes[0].device_type}, its engine runs on {core.device_type()}"
        remedy = (
            f"Start the engine there, ts.init({meshes[0].device_type!r}), or make the mesh on {core.device_type()}."
        )
        raise DeviceError(refusal(words, remedy=remedy))


def _choose_dims(tensors: Mapping[str, DTensor], axes: Mapping[str, Mapping[str, int]]) -> list[str | None]:
    mesh = next(iter(tensors.values())).device_mesh
    return [_choose_dim(tensors, axes, number) for number in range(mesh.ndim)]


def _choose_dim(tensors: Mapping[str, DTensor], axes: Mapping[str, Mapping[str, int]], number: int) -> str | None:
    """Return the dim that a mesh dim shards: the one by which most elements are already sharded; None for no dim."""
    best, most = None, 0
    for dim, axis_of in axes.items():
        in_place = 0
        for name, tensor in tensors.items():
            if name in axis_of and tensor.placements[number].is_shard(axis_of[name]):
                in_place += math.prod(tensor.shape)
        if in_place > most:
            best, most = dim, in_place
    return best


def _choose_placements(name: str, axes: Mapping[str, Mapping[str, int]], chosen: Sequence[str | None]) -> list[Any]:
    """Return an array's placement on each dim of the mesh: sharded along its axis of the chosen dim, or replicated."""
    from torch.distributed.tensor import Replicate, Shard

    return [Shard(axes[dim][name]) if dim is not None and name in axes[dim] else Replicate() for dim in chosen]


def _get_shard(
    tensor: DTensor, name: str, axes: Mapping[str, Mapping[str, int]], chosen: Sequence[str | None]
) -> torch.Tensor:
    """Bring an input to the placements of the chosen dims. Return this process's shard.

    If an input is replicated and others are sharded, each process computes a part of its gradient, and torch adds them.
    """
    from torch.distributed.tensor import Partial

    wanted = _choose_placements(name, axes, chosen)
    pairs = zip(wanted, chosen, strict=True)
    slopes = [Partial() if one.is_replicate() and dim is not None else one for one, dim in pairs]
    return tensor.redistribute(placements=wanted).to_local(grad_placements=slopes)


def set_parameter(parameter: torch.Tensor, content: torch.Tensor) -> None:
    """Set a parameter to `content`, which every process has completely.

    If the parameter is a DTensor, each process sets its own shard, without communication. A parameter on the meta
    device stays as it is, as in torch's own layers.
    """
    with torch.no_grad():
        parameter.copy_(_shard_like(parameter, content.to(parameter.dtype)) if is_distributed([parameter]) else content)


def _shard_like(parameter: Any, content: torch.Tensor) -> torch.Tensor:
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    shared = DTensor.from_local(content.to(mesh.device_type), mesh, [Replicate()] * mesh.ndim, run_check=False)
    return shared.redistribute(placements=parameter.placements)
