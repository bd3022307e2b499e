"""Blocks: memory that the threads of a block share, barriers, and the indices of threads.

They are lowered as they stand; `passes.run_blocks_in_order` turns them into loops that any engine runs
(docs/about/decisions/blocks.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...ir import BLOCK_SIZE, IN_A_PARALLEL_LOOP, Misfit, Operator, Type, VoteOperator, iteration_number, nodes, walk
from . import _constructors
from ._lowering import Lowering
from ._values import ArrayValue, Matrix, is_expression, plain


def _parallel(low: Lowering, name: str) -> nodes.For:
    """Return the parallel loop around a call. Raise Misfit if there is none."""
    if low.state.parallel is None:
        raise Misfit(f"`{name}` outside a parallel loop", IN_A_PARALLEL_LOOP)
    return low.state.parallel


def _shared_array(low: Lowering, shape: Any, dtype: Any) -> ArrayValue:
    """Lower `SharedArray(shape, dtype)`: declare an array that each block has one of."""
    _parallel(low, "SharedArray")
    sizes = [plain(size) for size in (shape if isinstance(shape, list | tuple) else [shape])]
    if isinstance(shape, Matrix) or any(map(is_expression, sizes)):
        words = "a `SharedArray` whose shape is computed at run time"
        raise Misfit(words, "Pass sizes that are known when the kernel is compiled, such as global constants")
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        words = f"a `SharedArray` of shape ({', '.join(map(str, sizes))})"
        raise Misfit(words, "Pass a positive integer, or a tuple of positive integers")
    matrix = low.matrix_type(dtype)
    element, kind = ((), _constructors.dtype(low, dtype)) if matrix is None else matrix
    if kind is None:
        raise Misfit(f"a `SharedArray` whose dtype is {dtype!r}")
    array = nodes.Array(low.state.fresh("shared"), kind, len(sizes), tuple(element), is_of_blocks=True)
    low.state.arrays[array.name] = array
    low.state.block_memory[array.name] = tuple(nodes.Const(size, Type.I32) for size in sizes)
    # The local that the array is assigned to will give it its name (`name_array`).
    low.state.unnamed.add(array.name)
    return ArrayValue(array, tuple(sizes), (0,) * len(sizes))


def name_array(low: Lowering, name: str, value: Any) -> Any:
    """Name a new array after the local that it is first assigned to; return other values unchanged."""
    state = low.state
    if not isinstance(value, ArrayValue) or value.array.name not in state.unnamed:
        return value
    state.unnamed.remove(value.array.name)
    # Free again: the source may call the array itself `shared`.
    state.taken.remove(value.array.name)
    array = replace(value.array, name=state.fresh(name))
    state.block_memory[array.name] = state.block_memory.pop(value.array.name)
    del state.arrays[value.array.name]
    state.arrays[array.name] = array
    return replace(value, array=array)


def _barrier(low: Lowering) -> None:
    """Lower `sync()`, and `mem_sync()`, which is a barrier on CUDA too."""
    _parallel(low, "sync()")
    low.state.emit(nodes.Barrier(line=low.state.line))


def _fence(_low: Lowering) -> None:
    """Ignore `mem_fence()`: iterations that run in order see what earlier ones did."""


def _vote(vote: VoteOperator) -> Callable[[Lowering, Any], nodes.Local]:
    """Return what lowers `sync_all_nonzero()` and the like: a barrier that tests a number in each iteration."""

    def lower(low: Lowering, predicate: Any) -> nodes.Local:
        _parallel(low, f"sync_{vote}_nonzero()")
        value = low.state.bind("vote", low.ops.cast(low.ops.scalar(predicate), Type.I32))
        result = low.state.local("votes", Type.I32)
        low.state.emit(nodes.Vote(vote, value, result.name, low.state.line))
        return result

    return lower


def _thread_index(low: Lowering) -> nodes.Expr:
    """Lower `thread_idx()`: the position of an iteration in its block."""
    size = _parallel(low, "thread_idx()").block_size or BLOCK_SIZE
    return nodes.Binary(Operator.MOD, _global_thread_index(low), nodes.Const(size, Type.I32), Type.I32)


def _global_thread_index(low: Lowering) -> nodes.Expr:
    """Lower `global_thread_idx()`: the number of an iteration, since each has a thread of its own."""
    loop = _parallel(low, "global_thread_idx()")
    bounds = [bound for pair in loop.bounds for bound in pair]
    # The loop read its bounds before its first iteration; read again here, they may have changed.
    if any(map(walk.reads_memory, bounds)):
        raise Misfit("`thread_idx` or `global_thread_idx` in a loop whose bounds are read from memory")
    return iteration_number(loop.names, loop.bounds)


LOWERED: dict[str, Callable[..., Any]] = {
    "lang.simt.block.SharedArray": _shared_array,
    "lang.simt.block.sync": _barrier,
    "lang.simt.block.mem_sync": _barrier,
    "lang.simt.block.mem_fence": _fence,
    "lang.simt.block.sync_all_nonzero": _vote(VoteOperator.ALL),
    "lang.simt.block.sync_any_nonzero": _vote(VoteOperator.ANY),
    "lang.simt.block.sync_count_nonzero": _vote(VoteOperator.COUNT),
    "lang.simt.block.thread_idx": _thread_index,
    "lang.simt.block.global_thread_idx": _global_thread_index,
}
