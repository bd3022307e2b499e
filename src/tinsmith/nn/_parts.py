"""Calls of modules whose parameters are DTensors (`distribute_module`): each process computes its part of the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.func import functional_call

from .._errors import ArgumentError, refusal
from ..torch_side import is_distributed, run_on_parts


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
    own = {name: (one.full_tensor() if is_distributed([one]) else one) for name, one in held.items()}

    def run(**parts: torch.Tensor) -> torch.Tensor:
        given = {name: parts[name] for name in inputs}
        return functional_call(_Method(module, method), {**own, **{name: parts[name] for name in params}}, (), given)

    return run_on_parts(run, {**inputs, **params}, axes, "", shape)


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
