"""The serial twin of a kernel: the same on one thread, where no other thread adds to an element."""

from __future__ import annotations

from dataclasses import replace

from ...ir import nodes, walk
from ..polish import write_out_addition


def serial_twin(kernel: nodes.Kernel) -> nodes.Kernel:
    """The same kernel without parallel loops, and without atomic additions."""
    return replace(kernel, body=tuple(walk.transform(one, lambda expr: expr, _plain) for one in kernel.body))


def _plain(one: nodes.Stmt) -> nodes.Stmt:
    return replace(one, is_parallel=False) if isinstance(one, nodes.For) else write_out_addition(one)
