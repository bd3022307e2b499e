"""Owners: the distribution of an array's networks over processes, and the routing of points to their networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..._errors import ArgumentError, refusal

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Run = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A function from points, and the index of each point's network among a process's own, to outputs."""


@dataclass(frozen=True)
class Owners:
    """The distribution of an array's networks over processes, in contiguous ranges as `torch.chunk` makes them.

    Attributes:
        mesh: the processes, a mesh of one dim.
        cells: the number of networks.
    """

    mesh: DeviceMesh
    cells: int

    def __post_init__(self) -> None:
        """Raise ArgumentError for a mesh of several dims, or if equal shares, rounded up, leave a process without a
        network.
        """
        if self.mesh.ndim != 1:
            rows = [("dims", str(self.mesh.ndim))]
            remedy = 'Pass one dim of it, `mesh["cells"]`.'
            raise ArgumentError(refusal("networks can be sharded along one dim of a mesh only", rows, remedy))
        if self._each * (self.mesh.size() - 1) >= self.cells:
            rows = [("networks", str(self.cells)), ("processes", str(self.mesh.size()))]
            remedy = f"Use {-(-self.cells // self._each)} processes, of up to {self._each} networks each."
            raise ArgumentError(refusal("a process would have no network", rows, remedy))

    @property
    def _each(self) -> int:
        """The number of networks of a process; the last processes may have fewer."""
        return -(-self.cells // self.mesh.size())

    @property
    def own(self) -> range:
        """The cells of this process."""
        first = self.mesh.get_local_rank() * self._each
        return range(min(first, self.cells), min(first + self._each, self.cells))

    def own_rows(self, cells: torch.Tensor) -> torch.Tensor:
        """Convert cells of this process to row indices into its part of the parameters.

        Raises:
            ArgumentError: a cell belongs to another process.
        """
        outside = (cells < self.own.start) | (cells >= self.own.stop)
        if bool(outside.any()):
            rows = [("cell", str(int(cells[outside][0]))), ("here", f"{self.own.start} to {self.own.stop - 1}")]
            remedy = "Name cells of `array.own_cells`; `array.route_points` takes points of any cell."
            raise ArgumentError(refusal("`at` names a cell of another process", rows, remedy))
        return cells - self.own.start

    def route(self, points: torch.Tensor, cells: torch.Tensor, run: Run) -> torch.Tensor:
        """Evaluate points with networks of any process, in the points' order.

        Each point is sent to the process of its network, and its output back. `run` evaluates the points that arrived.
        All processes must call this, with any number of points, and all must run the backward pass of the result.
        """
        owner = cells // self._each
        order = torch.argsort(owner, stable=True)
        sent = torch.bincount(owner, minlength=self.mesh.size())
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.mesh.get_group())
        there, back = sent.tolist(), received.tolist()
        own_points = self._exchange(points[order], there, back)
        own_cells = self._exchange(cells[order], there, back)
        outputs = self._exchange(run(own_points, own_cells - self.own.start), back, there)
        return outputs.new_empty(outputs.shape).index_copy(0, order, outputs)

    def _exchange(self, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        return _Exchange.apply(rows, sent, received, self.mesh.get_group())


class _Exchange(torch.autograd.Function):
    """A differentiable all-to-all exchange of rows, which are concatenated in the order of the processes.

    torch's differentiable version is deprecated, and its successor is private.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup
    ) -> torch.Tensor:
        ctx.way = received, sent, group
        received_rows = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(received_rows, rows.contiguous(), received, sent, group)
        return received_rows

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _Exchange.apply(gradients[0], *ctx.way), None, None, None
