"""Collapse: loops over all axes of arrays that are used element by element, as loops over the elements' numbers.

    for r, s in ndrange(x.shape[0], x.shape[1]):          for at in range(x.shape[0] * x.shape[1]):
        y[r, s] = 2.0 * x[r, s] + bias             ->         y[0, at] = 2.0 * x[0, at] + bias

OpenMP calls this the collapse of a loop nest. The last axis of a batch or of an array of colors is often short: rows of
16 numbers are no strips, and computing `r` and `s` from the number of an iteration takes a division. Arrays are
contiguous, so a loop over numbers visits the same elements in the same order.

The names that are merged must be the last indices of every array that uses any of them, in their order, and nothing
else may use them. From the second one on, each must run over the whole axis that it indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir import Names, Type, nodes, number, product, walk
from ._elementwise import is_elementwise
from ._row_major import behind_zeros, find_sizes, has_rows


def collapse_loops(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return a kernel whose elementwise loops over several axes run over numbers of elements where they can.

    Return the same object if there is no such loop.
    """
    if not any(isinstance(one, nodes.For) and len(one.names) > 1 for one in kernel.body):
        return kernel
    names = Names.of_kernel(kernel)
    sizes = find_sizes(kernel)
    body = tuple(_collapse(one, kernel, sizes, names) if isinstance(one, nodes.For) else one for one in kernel.body)
    return replace(kernel, body=body, locals=names.types) if body != kernel.body else kernel


def _collapse(
    loop: nodes.For, kernel: nodes.Kernel, sizes: Mapping[tuple[str, int], nodes.Expr], names: Names
) -> nodes.For:
    """Return a loop with as many of its last names merged as possible; the same object if none can be."""
    at = nodes.Local(names.fresh("at"), Type.I32)
    for kept in range(len(loop.names) - 1):
        merged = _merge(loop, kernel, sizes, at, kept)
        if merged is not None:
            names.types[at.name] = at.type
            # Other loops stay as they are: the engine compiles them from the user's own source.
            return merged if is_elementwise(merged, kernel) else loop
    return loop


def _merge(
    loop: nodes.For, kernel: nodes.Kernel, sizes: Mapping[tuple[str, int], nodes.Expr], at: nodes.Local, kept: int
) -> nodes.For | None:
    """Return a loop whose names after the first `kept` ones are one, the number `at` of an element.

    Return None if that is impossible.
    """
    own = loop.names[kept:]
    place = tuple(nodes.Local(name, Type.I32) for name in own)
    ends = [sizes.get((end.array, end.axis), end) if isinstance(end, nodes.Size) else end for _, end in loop.bounds]
    if any(begin != number(0) for begin, _ in loop.bounds[kept:]):
        return None
    # `for I in grouped(x)` copies the names first.
    given = Counter(name for one in loop.body for name in walk.find_assigned(one))
    copies = {
        one.name: one.value
        for one in loop.body
        if isinstance(one, nodes.Assign) and one.value in place and given[one.name] == 1
    }

    def index(array: str, parts: Sequence[nodes.Expr]) -> tuple[nodes.Expr, ...]:
        changed = tuple(map(expression, parts))
        first = len(changed) - len(own)
        if first < 0 or changed[first:] != place or array not in kernel.arrays or not has_rows(kernel.arrays[array]):
            return changed
        is_whole = all(sizes[array, first + axis] == ends[kept + axis] for axis in range(1, len(own)))
        return (*changed[:first], *behind_zeros(at, len(own))) if is_whole else changed

    def expression(one: nodes.Expr) -> nodes.Expr:
        match one:
            case nodes.Local(name):
                return copies.get(name, one)
            case nodes.Load(array, parts):
                return replace(one, index=index(array, parts))
        return walk.rebuild(one, expression)

    def statement(one: nodes.Stmt) -> list[nodes.Stmt]:
        if isinstance(one, nodes.Assign) and one.name in copies:
            return []
        changed = walk.with_expressions(one, expression)
        # An elementwise loop has no atomics.
        is_store = isinstance(changed, nodes.Store)
        return [replace(changed, index=index(changed.array, changed.index)) if is_store else changed]

    body = walk.rewrite(loop.body, statement)
    if not walk.find_mentioned(body).isdisjoint(own):
        return None
    whole = (number(0), product([end for _, end in loop.bounds[kept:]]))
    return replace(loop, names=(*loop.names[:kept], at.name), bounds=(*loop.bounds[:kept], whole), body=body)
