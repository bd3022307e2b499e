"""Fixed threads: turns parallel loops into grid-stride loops, for GPUs. The number of threads is constant, and each
thread executes every 2^20-th iteration.

    parallel for i in 0 .. n:             parallel for thread in 0 .. 1048576:
        z[i] = exp(x[i])           ->         for step in 0 .. (n - 1 - thread >> 20) + 1:
                                                  i = thread + (step << 20)
                                                  z[i] = exp(x[i])

On CUDA an engine launches two kernels for a loop whose end it does not know when it compiles: one thread computes the
end and stores it, then a grid of fixed size goes over the range in the same way as here. For an end that is a number it
launches one (docs/about/decisions/device-code.md). A loop over several names goes over the numbers of its iterations,
as the engines' own do.

Threads start in blocks of 128, in the order of the blocks. If iterations have loops of their own there are often only
some thousand of them, one for each ray or row, and the first blocks would take them all and leave half of a GPU idle.
So of each 512 blocks, the first warps take the first iterations, then the second ones, and so on. The 32 threads of a
warp still take iterations side by side.

An engine knows of the variable of its own loop that no two iterations share it, and this one has another. So a loop
keeps its form where the engine needs that: for an atomic at the variable, which would stay atomic, and for an element
that an inner loop stores again and again, which it holds in a register.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from ..ir import Names, Operator, Type, integer, minus, nodes, number, plus, product, walk

THREADS = 1 << 20
"""More than any GPU runs at once."""
_SHIFT = THREADS.bit_length() - 1
_LANES, _WARPS, _BLOCKS = 5, 2, 9
"""Powers of two: threads of a warp, warps of a block (of 128 threads, the engines' default), and blocks among which the
iterations of long loops are dealt out."""


def fix_threads(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return a kernel whose parallel loops have a known number of threads where they can; the same object if none."""
    if walk.has_barriers(kernel.body) or kernel.block_memory:
        return kernel
    names = Names.of_kernel(kernel)
    tasks = [_fix(one, names) if isinstance(one, nodes.For) and _fits(one) else one for one in kernel.body]
    body = walk.keep_block(kernel.body, tasks)
    return kernel if body is kernel.body else replace(kernel, body=body, locals=names.types)


def _fits(loop: nodes.For) -> bool:
    bounds = walk.expressions(loop)
    if not loop.is_parallel or loop.block_size or _is_counted(loop):
        return False
    # Memory may change while the loop runs, and the kernel of one thread computes locals of the top level anyway.
    is_fixed = not any(map(walk.reads_memory, bounds)) and not walk.locals_in(bounds)
    if not is_fixed or any(bound.type != Type.I32 for bound in bounds):
        return False
    # A product of two negative lengths would be positive.
    return all(map(_is_length, loop.bounds)) if len(loop.names) > 1 else not _needs_variable(loop)


def _is_length(bounds: tuple[nodes.Expr, nodes.Expr]) -> bool:
    begin, end = bounds
    return begin == number(0) and (isinstance(end, nodes.Size) or (isinstance(end, nodes.Const) and end.value >= 0))


def _needs_variable(loop: nodes.For) -> bool:
    """Return True if an engine compiles a loop over one name better because it knows the loop's variable."""
    own = nodes.Local(loop.names[0], Type.I32)
    atomics = (one for one in walk.stores(loop.body) if isinstance(one, nodes.Atomic))
    return any(own in one.index for one in atomics) or any(
        _stores_repeatedly(one) for one in walk.statements(loop.body) if isinstance(one, nodes.For | nodes.While)
    )


def _stores_repeatedly(loop: nodes.For | nodes.While) -> bool:
    """Return True if a loop stores to an element that its iterations do not choose."""
    inside = walk.find_defined([loop])
    return any(walk.locals_in(one.index).isdisjoint(inside) for one in walk.stores(loop.body))


def _fix(loop: nodes.For, names: Names) -> nodes.For:
    names.types |= dict.fromkeys(loop.names, Type.I32)
    thread, step = names.local("thread", Type.I32), names.local("step", Type.I32)
    begin = loop.bounds[0][0]
    lengths = [minus(end, first) for first, end in loop.bounds]
    # Without a sum that could overflow: of a negative number that is shifted, -1 is left.
    start = names.local("start", Type.I32) if _has_long_loops(loop) else thread
    after = integer(Operator.SUB, integer(Operator.SUB, product(lengths), number(1)), start)
    steps = integer(Operator.ADD, integer(Operator.SHIFT_RIGHT, after, number(_SHIFT)), number(1))
    place = integer(Operator.ADD, plus(begin, start), integer(Operator.SHIFT_LEFT, step, number(_SHIFT)))
    indices = _find_indices(loop, place, lengths, names)
    inner = nodes.For((step.name,), ((number(0), steps),), (*indices, *loop.body), line=loop.line)
    dealt = [] if start is thread else [nodes.Assign(start.name, _deal_out(thread), loop.line)]
    return replace(loop, names=(thread.name,), bounds=((number(0), number(THREADS)),), body=(*dealt, inner))


def _has_long_loops(loop: nodes.For) -> bool:
    """Return True if an iteration has a loop whose length is not a number in the source."""
    inner = (one for one in walk.statements(loop.body) if isinstance(one, nodes.For | nodes.While))
    return any(isinstance(one, nodes.While) or not _is_counted(one) for one in inner)


def _is_counted(loop: nodes.For) -> bool:
    return all(isinstance(bound, nodes.Const) for bound in walk.expressions(loop))


def _deal_out(thread: nodes.Local) -> nodes.Expr:
    """Return the first iteration of a thread, so that warps of many blocks take iterations before second warps do."""

    def move(begin: int, bits: int, to: int) -> nodes.Expr:
        part = integer(Operator.SHIFT_RIGHT, thread, number(begin)) if begin else thread
        part = integer(Operator.BIT_AND, part, number((1 << bits) - 1))
        return integer(Operator.SHIFT_LEFT, part, number(to)) if to else part

    parts = [
        integer(Operator.BIT_AND, thread, number(-1 << (_LANES + _WARPS + _BLOCKS))),
        move(_LANES, _WARPS, _LANES + _BLOCKS),
        move(_LANES + _WARPS, _BLOCKS, _LANES),
        move(0, _LANES, 0),
    ]
    return reduce(lambda one, other: integer(Operator.ADD, one, other), parts)


def _find_indices(loop: nodes.For, place: nodes.Expr, lengths: list[nodes.Expr], names: Names) -> list[nodes.Stmt]:
    """Return assignments that compute a loop's indices from the linear number of an iteration, in row-major order."""
    written: list[nodes.Stmt] = []
    for name, length in reversed([*zip(loop.names[1:], lengths[1:], strict=True)]):
        whole, rest = names.local("whole", Type.I32), names.local("rest", Type.I32)
        written += [
            nodes.Assign(whole.name, place, loop.line),
            nodes.Assign(rest.name, integer(Operator.FLOOR_DIV, whole, length), loop.line),
            nodes.Assign(name, integer(Operator.SUB, whole, integer(Operator.MUL, rest, length)), loop.line),
        ]
        place = rest
    return [*written, nodes.Assign(loop.names[0], place, loop.line)]
