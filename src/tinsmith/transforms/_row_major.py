"""Row-major indices: elements of arrays with several axes by one number, which the kernel computes itself.

    for r in range(x.shape[0]):               for r in range(x.shape[0]):
        for s in range(x.shape[1]):               size = x.shape[1]
            y[r, s] = 2.0 * x[r, s]    ->         for s in range(x.shape[1]):
                                                      y[0, r * size + s] = 2.0 * x[0, r * size + s]

The engines compute `r * y.shape[1] + s` from sizes that lie in memory, and their compilers load these again after each
store, which might have changed them (docs/about/decisions/vector-speed.md). Here the sizes are locals, so what depends
on `r` alone is computed once. Multiplied by the first index, which is 0, the engines' own sizes drop out. Elements lie
in the same places as before: arrays are contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..source.ir import nodes, walk
from ._algebra import cast, integer, number
from ._names import Names
from ._strip_parts import assign

Access = nodes.Load | nodes.Store | nodes.Atomic


def index_by_rows(kernel: nodes.Kernel) -> nodes.Kernel:
    """A kernel that computes row-major indices in its outermost loops; the same one where nothing has several axes."""
    if not any(map(_has_rows, kernel.arrays.values())):
        return kernel
    names = Names(walk.names_of(kernel))
    names.types |= kernel.locals
    sizes = _find_sizes(kernel)
    body = tuple(_index_task(one, sizes, names) if isinstance(one, nodes.For) else one for one in kernel.body)
    return replace(kernel, body=body, locals=names.types)


def has_rows_in_loops(kernel: nodes.Kernel) -> bool:
    """Whether a loop inside another one uses an array of several axes, so that computing indices once pays."""
    tasks = [part for one in kernel.body if isinstance(one, nodes.For) for part in one.body]
    inner = [one for one in walk.statements(tasks) if isinstance(one, nodes.For | nodes.While)]
    touched = {name for one in inner for name in walk.find_touched(one.body)}
    return any(name in touched and _has_rows(one) for name, one in kernel.arrays.items())


def _has_rows(array: nodes.Array) -> bool:
    return array.rank > 1 and _is_given(array)


def _is_given(array: nodes.Array) -> bool:
    """Whether an array is a launch's own: fields lie as their owner placed them, that of blocks as the engine does."""
    return not array.label and not array.is_of_blocks


def _find_sizes(kernel: nodes.Kernel) -> dict[tuple[str, int], nodes.Expr]:
    """The sizes of arrays by name and axis: one expression for all that are known to be equal."""
    same: dict[str | int, nodes.Expr] = {}
    sizes: dict[tuple[str, int], nodes.Expr] = {}
    for array in filter(_is_given, kernel.arrays.values()):
        dims = array.dims if len(array.dims) == array.rank else (None,) * array.rank
        for axis, dim in enumerate(dims):
            size = number(dim) if isinstance(dim, int) else nodes.Size(array.name, axis)
            sizes[array.name, axis] = size if dim is None else same.setdefault(dim, size)
    return sizes


def _index_task(task: nodes.For, sizes: Mapping[tuple[str, int], nodes.Expr], names: Names) -> nodes.For:
    """A loop in which arrays of several axes have row-major indices."""
    locals_: dict[nodes.Size, nodes.Local] = {}

    def size_of(array: str, axis: int) -> nodes.Expr:
        size = sizes[array, axis]
        if not isinstance(size, nodes.Size):
            return size
        if size not in locals_:
            locals_[size] = names.local(f"{size.array}_size", "i32")
        return locals_[size]

    def change(one: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        if isinstance(one, nodes.Size) and (one.array, one.axis) in sizes:
            return size_of(one.array, one.axis)
        if not isinstance(one, Access) or (one.array, 1) not in sizes:
            return one
        place, *others = (cast(index, "i32") for index in one.index)
        for axis, index in enumerate(others, start=1):
            row = integer("*", place, size_of(one.array, axis))
            # The last term stays the last: vectors are known by it, and the sum of the others is computed once.
            match index:
                case nodes.Binary("+", first, last):
                    place = integer("+", integer("+", row, first), last)
                case _:
                    place = integer("+", row, index)
        return replace(one, index=(*(number(0) for _ in others), place))

    body = walk.change_parts(task.body, change)
    return replace(task, body=(*(assign(local, size) for size, local in locals_.items()), *body))
