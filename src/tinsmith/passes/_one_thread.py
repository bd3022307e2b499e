"""On one thread: no loop is parallel, and no addition atomic.

    parallel for i in 0 .. n:                    for i in 0 .. n [is_independent]:
        atomic add total[], x[i]           ->        total[] = total[] + x[i]

No other thread adds to an element, and an atomic addition takes as long as 20 to 60 operations. That iterations of a
loop were parallel stays known: lanes may still run them side by side.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import nodes, walk
from ._pipelines import serialize_kernel
from .polish import write_out_addition


def run_on_one_thread(kernel: nodes.Kernel) -> nodes.Kernel:
    """Let all loops run in order, and make atomic additions plain ones."""
    body = tuple(walk.transform(one, lambda expr: expr, write_out_addition) for one in kernel.body)
    return serialize_kernel(replace(kernel, body=body))
