"""Modules and tensors over several processes.

The parameters of a module may be DTensors (`distribute_module`): each process then computes its part of the input. Of a
sharded tensor each process holds a contiguous range of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.func import functional_call

from .._errors import ArgumentError, refusal
from ..torch_side import is_distributed, run_on_parts

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


def own_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of this process's rows of a sharded tensor; return a plain tensor unchanged. Differentiable."""
    return as_shared(tensor).to_local() if is_distributed([tensor]) else tensor


def as_shared(tensor: Any) -> DTensor:
    """Return the tensor unchanged, typed as a DTensor. The caller knows that it is one."""
    return tensor


def shard_rows(tensor: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    """Shard a tensor, [row, ...], over a mesh by rows. Its values are those that the first process passes."""
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(tensor.detach(), mesh, [Shard(0)])


def join_rows(rows: torch.Tensor, count: int, mesh: DeviceMesh) -> DTensor:
    """Build the sharded tensor with `count` rows in total from this process's rows. All processes must call this."""
    from torch.distributed.tensor import DTensor, Shard

    size = torch.Size([count, *rows.shape[1:]])
    stride = torch.empty(size, device="meta").stride()
    return DTensor.from_local(rows.contiguous(), mesh, [Shard(0)], run_check=False, shape=size, stride=stride)


def gather(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor, with the rows of all processes. All must call this if the tensor is a DTensor."""
    return as_shared(tensor).full_tensor() if is_distributed([tensor]) else tensor


def call_on_parts(
    module: torch.nn.Module,
    method: Callable[..., torch.Tensor],
    inputs: Mapping[str, Any],
    axes: Mapping[str, Mapping[str, int]],
    shape: Sequence[int],
) -> torch.Tensor:
    """Call a method of a module on this process's shard of each input, with the full parameters.

    Args:
        module: the module; all of its parameters are DTensors, or it has none.
        method: the method to call. It takes the inputs by name, and reads the module's parameters.
        inputs: the inputs by name, DTensors.
        axes: for each dim that may be sharded: its axis in each input that has it, and in the result, whose name is "".
        shape: the shape of the full result.

    Returns:
        The result, a DTensor.

    Raises:
        ArgumentError: inputs and parameters are not all DTensors, or not on one mesh.
    """
    params = {f"module.{name}": one for name, one in module.named_parameters() if one.numel()}
    _check(type(module).__name__, inputs, params)
    idle = {f"module.{name}": one for name, one in module.named_parameters() if not one.numel()}
    held = {**idle, **{f"module.{name}": one for name, one in module.named_buffers()}}
    own = {name: gather(one) for name, one in held.items()}

    def run(**parts: torch.Tensor) -> torch.Tensor:
        given = {name: parts[name] for name in inputs}
        return functional_call(_Method(module, method), {**own, **{name: parts[name] for name in params}}, (), given)

    return run_on_parts(run, {**inputs, **params}, axes, shape)


def forward_on_parts(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Call `forward` of an encoding or a network on this process's shard of x, [..., n_input_dims], as above."""
    axes = {str(axis): {"x": axis, "": axis} for axis in range(x.ndim - 1)}
    return call_on_parts(module, module.forward, {"x": x}, axes, (*x.shape[:-1], module.n_output_dims))


class _Method(torch.nn.Module):
    """A module whose `forward` is a method of another module, whose hooks have run already.

    `functional_call` takes modules only.
    """

    def __init__(self, module: torch.nn.Module, method: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.module = module
        self.method = method

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Call the method with these inputs."""
        return self.method(**inputs)


def _check(module: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    shared = [name for name, one in inputs.items() if is_distributed([one])]
    name = next((name for name in inputs if name not in shared), None)
    if name is not None:
        words = f"`{name}` of the {module} is a plain tensor, but the parameters are sharded over processes (DTensor)"
        remedy = f"Pass `distribute_tensor({name}, mesh, ...)`, or `DTensor.from_local({name}, mesh, ...)`."
        raise ArgumentError(refusal(words, [(name, type(inputs[name]).__name__)], remedy))
    meshes = {name: inputs[name].device_mesh for name in inputs}
    for one in params.values():
        if not is_distributed([one]):
            words = f"`{shared[0]}` of the {module} is sharded over processes (DTensor), but the parameters are not"
            remedy = f"Call `distribute_module(module, mesh)` first, or pass `{shared[0]}.to_local()`."
            raise ArgumentError(refusal(words, remedy=remedy))
        meshes["params"] = one.device_mesh
    if any(mesh != meshes[shared[0]] for mesh in meshes.values()):
        rows = [(name, str(mesh)) for name, mesh in meshes.items()]
        words = f"the inputs and parameters of the {module} are on different meshes"
        raise ArgumentError(refusal(words, rows, "Distribute them over one mesh."))


def average(tensors: Sequence[torch.Tensor], group: dist.ProcessGroup) -> None:
    """Replace each tensor by its mean over the processes of a group, in place.

    All processes must pass tensors of the same sizes in the same order. Tensors of one dtype are sent in one message,
    since a message costs tens of microseconds whatever its size.
    """
    count = dist.get_world_size(group)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        some = [tensor for tensor in tensors if tensor.dtype == dtype]
        whole = torch.cat([tensor.reshape(-1) for tensor in some])
        dist.all_reduce(whole, group=group)
        whole /= count
        for tensor, part in zip(some, whole.split([one.numel() for one in some]), strict=True):
            tensor.copy_(part.view_as(tensor))
