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
"""Seconds."""


@dataclass(frozen=True)
class Processes:
    """The processes that train together, and the rank of this one.

    All draw the same batch, and hold the same weights; the first one alone writes files and prints.

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
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def require_shares(self, what: str, size: int) -> None:
        """Refuse a batch that cannot be shared out evenly: means of unequal shares would not average to the whole's.

        Raises:
            InputError: with the size, and how many processes there are.
        """
        if size % self.count:
            rows = [(what, str(size)), ("processes", str(self.count))]
            remedy = f"Ask for {size - size % self.count or self.count}, or start other processes."
            raise InputError(refusal(f"{what} cannot be shared out evenly among the processes", rows, remedy))

    def require_alone(self, what: str) -> None:
        """Refuse what one process alone can do. Raises InputError."""
        if self.count > 1:
            rows = [("processes", str(self.count))]
            raise InputError(refusal(f"{what} is for one process alone", rows, "Leave out one of the two."))

    def share(self, batch: Tensor, dim: int = 0) -> Tensor:
        """This process's part of a batch: every `count`-th, so that all parts are alike."""
        return batch if self.count == 1 else batch[(slice(None),) * dim + (slice(self.rank, None, self.count),)]

    def any(self, flag: bool) -> bool:
        """Whether one of the processes says so; all get the same answer, and wait for each other."""
        if self.count == 1:
            return flag
        shared_flag = torch.tensor([flag], dtype=torch.int32, device=self._device)
        dist.all_reduce(shared_flag, dist.ReduceOp.MAX, self.group)
        return bool(shared_flag)

    def align(self, model: torch.nn.Module) -> None:
        """Give all processes the first one's weights."""
        for tensor in (*model.parameters(), *model.buffers()) if self.count > 1 else ():
            dist.broadcast(tensor.data, 0, self.group)

    def wait(self) -> None:
        """Wait until all are here."""
        if self.count > 1:
            dist.barrier(self.group)

    @property
    def _device(self) -> str:
        return "cuda" if dist.get_backend(self.group) == "nccl" else "cpu"


ALONE = Processes()
"""One process, which trains by itself."""


def read_launched_processes() -> Processes:
    """What `torchrun` says of this process; alone where it was started otherwise. Nothing is joined yet."""
    return Processes(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """The processes that train together, joined for as long as the block runs."""
    started = read_launched_processes()
    joins = started.count > 1 and not dist.is_initialized()
    if joins:
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield replace(started, group=dist.group.WORLD if started.count > 1 else None)
    finally:
        if joins:
            dist.destroy_process_group()
            # A thread of gloo's that lets go of the last tensor while Python ends aborts the process (torch 2.13).
            time.sleep(_LAST_TENSOR)
