"""Processes that train together, started by `torchrun`: each takes a part of every batch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from .._errors import InputError, refusal

_LAST_TENSOR = 0.1
"""Seconds to wait before the process may end (see `join_processes`)."""


@dataclass(frozen=True)
class Processes:
    """The processes that train together, and the rank of this one.

    All draw the same batch and have the same weights. Only the first one writes files and prints.

    Attributes:
        rank: the number of this process, from 0.
        count: the number of processes.
        group: their process group; None for a single process.
    """

    rank: int = 0
    count: int = 1
    group: dist.ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        """True if this process is the one that writes and prints."""
        return self.rank == 0

    def require_shares(self, what: str, size: int) -> None:
        """Raise InputError if a batch cannot be split evenly: the mean of unequal parts' means would not be the batch's
        mean.
        """
        if size % self.count:
            rows = [(what, str(size)), ("processes", str(self.count))]
            remedy = f"Ask for {size - size % self.count or self.count}, or start another number of processes."
            raise InputError(refusal(f"{what} cannot be divided evenly among the processes", rows, remedy))

    def require_alone(self, what: str) -> None:
        """Raise InputError if several processes train together: the feature `what` supports only one."""
        if self.count > 1:
            rows = [("processes", str(self.count))]
            remedy = f"Start one process, or leave out {what}."
            raise InputError(refusal(f"{what} works with one process only", rows, remedy))

    def share(self, batch: Tensor, dim: int = 0) -> Tensor:
        """Return this process's part of a batch: every `count`-th entry along `dim`, so that all parts are alike."""
        return batch if self.count == 1 else batch[(slice(None),) * dim + (slice(self.rank, None, self.count),)]

    def any_process(self, flag: bool) -> bool:
        """Return True on every process if any passed True. Blocks until all have called."""
        if self.count == 1:
            return flag
        shared_flag = torch.tensor([flag], dtype=torch.int32, device=self._device)
        dist.all_reduce(shared_flag, dist.ReduceOp.MAX, self.group)
        return bool(shared_flag)

    def align(self, model: torch.nn.Module) -> None:
        """Copy the first process's weights to all processes."""
        for tensor in (*model.parameters(), *model.buffers()) if self.count > 1 else ():
            dist.broadcast(tensor.data, 0, self.group)

    def wait(self) -> None:
        """Wait until all processes have called."""
        if self.count > 1:
            dist.barrier(self.group)

    @property
    def _device(self) -> str:
        return "cuda" if dist.get_backend(self.group) == "nccl" else "cpu"


ALONE = Processes()
"""A single process that trains alone."""


def read_launched_processes() -> Processes:
    """Return the rank and number of processes that `torchrun` has set in the environment; a single one without it.
    Joins no group.
    """
    return Processes(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Enter a context in which the processes that train together have a process group; yield them."""
    started = read_launched_processes()
    joins = started.count > 1 and not dist.is_initialized()
    if joins:
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield replace(started, group=dist.group.WORLD if started.count > 1 else None)
    finally:
        if joins:
            dist.destroy_process_group()
            # If a thread of gloo frees the last tensor while Python exits, the process aborts (torch 2.13).
            time.sleep(_LAST_TENSOR)
