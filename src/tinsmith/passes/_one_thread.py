"""On one thread: no loop is parallel, and no addition atomic.

    parallel for i in 0 .. n:                    for i in 0 .. n:
        atomic add total[], x[i]           ->        total[] = total[] + x[i]

No other thread adds to an element, and an atomic addition takes as long as 20 to 60 operations.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import nodes, walk
from .polish import write_out_addition


def run_on_one_thread(kernel: nodes.Kernel) -> nodes.Kernel:
    """Let all loops run in order, and make atomic additions plain ones."""
    return replace(kernel, body=tuple(walk.transform(one, lambda expr: expr, _plain) for one in kernel.body))


def _plain(one: nodes.Stmt) -> nodes.Stmt:
    return replace(one, is_parallel=False) if isinstance(one, nodes.For) else write_out_addition(one)
