"""Calls of a layer on fields with DTensors: a field holds a whole array, so each process computes the whole call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..._errors import ArgumentError, refusal
from ..fields import LayerField

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def replicate(
    fields: Sequence[LayerField], tensors: Sequence[Any], layer: str
) -> tuple[DeviceMesh, list[torch.Tensor]]:
    """Gather a call's DTensors. Differentiable. Return their mesh, and the whole tensors of this process.

    Raises:
        ArgumentError: one of the tensors is no DTensor, or is on another mesh.
    """
    from torch.distributed.tensor import DTensor, Replicate

    for one, tensor in zip(fields, tensors, strict=True):
        if not isinstance(tensor, DTensor):
            words = f"`{one.name}` of {layer} is not a DTensor, and other tensors of the call are"
            remedy = f"Pass `distribute_tensor({one.name}, mesh, [Replicate()])`, or weights by `distribute_module`."
            raise ArgumentError(refusal(words, [(one.name, type(tensor).__name__)], remedy))
    mesh = tensors[0].device_mesh
    if any(tensor.device_mesh != mesh for tensor in tensors):
        raise ArgumentError(refusal(f"the tensors of {layer} are on different meshes", remedy="Put them on one mesh."))
    placements = [Replicate()] * mesh.ndim
    replicated = [tensor.redistribute(placements=placements) for tensor in tensors]
    # Each process has the whole gradient, since it computes the whole call.
    return mesh, [tensor.to_local(grad_placements=placements) for tensor in replicated]


def as_replicated(mesh: DeviceMesh, result: torch.Tensor) -> torch.Tensor:
    """Return a result that every process has computed as a DTensor. Differentiable."""
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(result, mesh, [Replicate()] * mesh.ndim, run_check=False)
