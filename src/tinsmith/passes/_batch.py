"""Batching: a kernel for one sample, made into one that runs all samples of a batch in one launch.

    parallel for i in 0 .. n:                    parallel for sample, i in 0 .. x.shape[0], 0 .. n:
        y[i] = x[i] * w[i]                           y[sample, i] = x[sample, i] * w[i]
    for j in 1 .. x.shape[0]:              ->    parallel for sample in 0 .. x.shape[0]:
        y[j] = y[j - 1] + y[j]                       for j in 1 .. x.shape[1]:
                                                         y[sample, j] = y[sample, j - 1] + y[sample, j]

Batched arrays (here `x` and `y`) get an axis in front, and each index into them the sample's number. What comes out is
a kernel like any other: the gradient of a batch is the adjoint of this form, and its tangent the tangent of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..ir import Names, Type, nodes, number, walk


class NotBatchable(Exception):
    """Why a kernel is launched once for each sample."""


def batch_kernel(kernel: nodes.Kernel, arrays: Collection[str]) -> nodes.Kernel:
    """Return a kernel that runs a whole batch.

    Where loops alone touch memory, each of them runs over the samples too, so that all iterations are parallel that
    were. Else the samples are the iterations of one parallel loop, and each runs its statements in order.

    Args:
        kernel: the kernel for one sample.
        arrays: those of its arrays that have a batch dimension, everything that it changes among them.

    Raises:
        NotBatchable: a local of the top level is changed by a parallel loop, where each sample needs one of its own.
    """
    # A cell is one number of the kernel's own, which no launch is given: it cannot get an axis for samples.
    if kernel.cells:
        raise NotBatchable(f"several loops use the variable `{kernel.cells[0]}`, and each sample would need its own")
    sample = Names.of_kernel(kernel).fresh("sample")
    # All batched arrays have one batch, so any of them tells its size.
    first = next(name for name in kernel.arrays if name in arrays)
    samples = (number(0), nodes.Size(first, 0))

    def shift(one: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        """Put the sample's number in front of an index, and the batch in front of a shape."""
        match one:
            case nodes.Size() if one.array in arrays:
                return replace(one, axis=one.axis + 1)
            case nodes.Load() | nodes.Store() | nodes.Atomic() if one.array in arrays:
                return replace(one, index=(nodes.Local(sample, Type.I32), *one.index))
        return one

    body = walk.change_parts(kernel.body, shift)
    if _is_by_loops(kernel, arrays):
        body = tuple([_with_samples(one, sample, samples) for one in body])
    else:
        line = body[0].line if body else 0
        body = (nodes.For((sample,), (samples,), tuple(map(_in_order, body)), is_parallel=True, line=line),)
    return replace(
        kernel,
        arrays={
            n: replace(a, rank=a.rank + 1, dims=a.dims and (None, *a.dims)) if n in arrays else a
            for n, a in kernel.arrays.items()
        },
        # Statements of ours have no number yet.
        body=walk.number_statements(body),
    )


def _is_by_loops(kernel: nodes.Kernel, arrays: Collection[str]) -> bool:
    """Return True if everything that differs between samples happens inside top-level loops."""
    # Statements of the top level then run once for the whole batch. So a local that they share with a loop must not
    # be changed in it, and a parallel loop must not take its bounds from a sample's own memory.
    tops = {name for one in kernel.body if not isinstance(one, nodes.For) for name in walk.find_assigned(one)}
    for one in kernel.body:
        if isinstance(one, nodes.For):
            is_shared = not tops.isdisjoint(walk.find_defined(one.body))
            if is_shared or (one.is_parallel and not walk.arrays_in(walk.expressions(one)).isdisjoint(arrays)):
                return False
        elif not isinstance(one, nodes.Assign) or not walk.arrays_in([one.value]).isdisjoint(arrays):
            return False
    return True


def _with_samples(one: nodes.Stmt, sample: str, samples: tuple[nodes.Expr, nodes.Expr]) -> nodes.Stmt:
    """Wrap a loop at the top level of a kernel so that it runs for each sample of the batch."""
    if not isinstance(one, nodes.For):
        return one
    if one.is_parallel:
        return replace(one, names=(sample, *one.names), bounds=(samples, *one.bounds))
    # Not one more dim of it: a `break` would end the loop for all samples.
    return nodes.For((sample,), (samples,), (one,), is_parallel=True, line=one.line)


def _in_order(one: nodes.Stmt) -> nodes.Stmt:
    return replace(one, is_parallel=False) if isinstance(one, nodes.For) else one
