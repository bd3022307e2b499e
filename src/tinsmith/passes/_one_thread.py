"""On one thread: no loop is parallel, and no addition atomic.

    parallel for i in 0 .. n:                    for i in 0 .. n [is_independent]:
        atomic add total[], x[i]           ->        total[] = total[] + x[i]

No other thread adds to an element, and an atomic addition takes as long as 20 to 60 operations. That iterations of a
loop were parallel stays known: lanes may still run them side by side.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import nodes, walk
from .polish import write_out_addition


def run_on_one_thread(kernel: nodes.Kernel) -> nodes.Kernel:
    """Let all loops run in order, and make atomic additions plain ones."""
    return replace(kernel, body=tuple(walk.transform(one, lambda expr: expr, _plain) for one in kernel.body))


def _plain(one: nodes.Stmt) -> nodes.Stmt:
    return run_in_order(one) if isinstance(one, nodes.For) else write_out_addition(one)


def run_in_order(loop: nodes.For) -> nodes.For:
    """Return a loop that one thread runs; a parallel one is marked as independent."""
    return replace(loop, is_parallel=False, is_independent=loop.is_parallel or loop.is_independent)
