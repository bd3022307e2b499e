"""Shards: tensors whose rows are distributed over processes, a contiguous range each (torch's DTensor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..torch_side import is_distributed

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


def own_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The rows of this process, in the tensor's memory; all rows of an ordinary tensor. Differentiable."""
    return as_shared(tensor).to_local() if is_distributed([tensor]) else tensor


def as_shared(tensor: Any) -> DTensor:
    """Cast the type of a tensor that is known to be a DTensor."""
    return tensor


def share_out(tensor: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    """Shard a tensor that every process has as a whole by rows, with the first process's values."""
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(tensor.detach(), mesh, [Shard(0)])


def of_own_rows(rows: torch.Tensor, count: int, mesh: DeviceMesh) -> DTensor:
    """The DTensor with `count` rows in all, from the rows of each process."""
    from torch.distributed.tensor import DTensor, Shard

    size = torch.Size([count, *rows.shape[1:]])
    stride = torch.empty(size, device="meta").stride()
    return DTensor.from_local(rows.contiguous(), mesh, [Shard(0)], run_check=False, shape=size, stride=stride)


def gather(tensor: torch.Tensor) -> torch.Tensor:
    """Gather all rows. If processes share the tensor, all of them must call this."""
    return as_shared(tensor).full_tensor() if is_distributed([tensor]) else tensor
