"""Blocks spread over the threads of a CPU: each is enough work for a thread, which engines do not know.

    parallel for block in 0 .. 4:        ->      parallel for block, share in 0 .. 4, 0 .. 512:
        near[block, 0] = f32(block)                  if share == 0:
                                                         near[block, 0] = f32(block)

On GPUs blocks are left as they are.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir import Names, Operator, Type, compare, constant, integer, minus, nodes, times, walk

SHARE = 512
"""Iterations that Taichi 1.7.4 and Quadrants 1.3.3 give a thread at least, however long one takes."""
ENOUGH = 128 * SHARE
"""Iterations that keep all threads busy: as many blocks need no others beside them."""


def spread_blocks(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return the kernel with idle iterations between its blocks, as many as let each thread get some blocks.

    A picture of 256 tiles would be one thread's work otherwise.
    """
    names = Names.of_kernel(kernel)

    def split_loop(one: nodes.Stmt) -> nodes.Stmt:
        if not walk.is_parallel(one):
            return one
        is_over_blocks = any(kernel.arrays[name].is_of_blocks for name in walk.find_touched([one]))
        return _split_loop(one, names) if is_over_blocks else one

    return replace(kernel, body=tuple(map(split_loop, kernel.body)))


def _split_loop(loop: nodes.For, names: Names) -> nodes.For:
    share = nodes.Local(names.fresh("share"), Type.I32)
    zero, one = constant(0, Type.I32), constant(1, Type.I32)
    total: nodes.Expr = one
    for first, end in loop.bounds:
        total = times(total, minus(end, first))
    # At least 1, since it divides: a loop over no blocks still computes its bounds.
    blocks = integer(Operator.MAX, total, one)
    beside = integer(Operator.MAX, integer(Operator.FLOOR_DIV, constant(ENOUGH, Type.I32), blocks), one)
    # With 512 iterations each, a block is a thread's share: more would not spread them further.
    count = integer(Operator.MIN, beside, constant(SHARE, Type.I32))
    body = (nodes.If(compare(Operator.EQ, share, zero), loop.body, (), loop.line),)
    bounds = (*loop.bounds, (zero, count))
    return replace(loop, names=(*loop.names, share.name), bounds=bounds, body=body)
