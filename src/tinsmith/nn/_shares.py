"""Shares: tensors whose rows are shared out among processes, each of which has a run of them (torch's DTensor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..bridge import is_distributed

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


def own_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The rows that this process has, in the tensor's memory; all of a tensor that is not shared. Differentiable."""
    return as_shared(tensor).to_local() if is_distributed([tensor]) else tensor


def as_shared(tensor: Any) -> DTensor:
    """The tensor, which is known to be shared, by its own type."""
    return tensor


def share_out(tensor: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    """A tensor that every process has as a whole, shared out by its rows: the first process's values."""
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(tensor.detach(), mesh, [Shard(0)])


def of_own_rows(rows: torch.Tensor, count: int, mesh: DeviceMesh) -> DTensor:
    """The shared tensor with `count` rows of which each process has these."""
    from torch.distributed.tensor import DTensor, Shard

    size = torch.Size([count, *rows.shape[1:]])
    stride = torch.empty(size, device="meta").stride()
    return DTensor.from_local(rows.contiguous(), mesh, [Shard(0)], run_check=False, shape=size, stride=stride)


def gather(tensor: torch.Tensor) -> torch.Tensor:
    """All rows. Where processes share the tensor, all of them call this."""
    return as_shared(tensor).full_tensor() if is_distributed([tensor]) else tensor
