"""Sharded tensors (torch's DTensor): each process holds a contiguous range of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..torch_side import is_distributed

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
