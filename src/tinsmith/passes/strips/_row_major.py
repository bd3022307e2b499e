"""Row-major indices: elements of arrays with several axes by one number, which the kernel computes itself.

    for r in range(x.shape[0]):               for r in range(x.shape[0]):
        for s in range(x.shape[1]):               size = x.shape[1]
            y[r, s] = 2.0 * x[r, s]    ->         for s in range(size):
                                                      at = r * size + s
                                                      y[0, at] = 2.0 * x[0, at]

The engines compute `r * y.shape[1] + s` from sizes that lie in memory, and their compilers load these again after each
store, which might have changed them (docs/about/decisions/vector-speed.md). Here the sizes are locals, so what depends
on `r` alone is computed once. Multiplied by the first index, which is 0, the engines' own sizes drop out. Elements lie
in the same places as before: arrays are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...ir import Names, Operator, Type, cast, integer, nodes, number, walk
from ._parts import assign


def index_by_rows(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return a kernel whose outermost loops address arrays of several axes by one row-major number.

    The number is computed from sizes held in locals. Return the same object if the kernel has no such array.
    """
    if not any(map(has_rows, kernel.arrays.values())):
        return kernel
    names = Names.of_kernel(kernel)
    sizes = find_sizes(kernel)
    body = tuple(_Indexing(sizes, names).task(one) if isinstance(one, nodes.For) else one for one in kernel.body)
    return replace(kernel, body=body, locals=names.types)


def number_element(
    index: Sequence[nodes.Expr],
    size: Callable[[int], nodes.Expr],
    share: Callable[[nodes.Expr], nodes.Expr] = lambda part: part,
) -> nodes.Expr:
    """Return the number of an element in row-major order.

    Args:
        index: its index.
        size: gives the size of an axis.
        share: gives what stands for a part that other elements have too.
    """
    place, *others = index
    for axis, one in enumerate(others, start=1):
        # The first row, or an index that is written by rows already: zeros, then the number.
        if place == number(0):
            place = one
            continue
        row = integer(Operator.MUL, share(place), size(axis))
        match one:
            # `z[r, s, 0]` and `z[r, s, 1]` share all but the constant.
            case nodes.Const():
                row = share(row)
                place = row if one == number(0) else integer(Operator.ADD, row, one)
            # The last term stays last: in strips and vectors it is the lane, after which elements lie side by side.
            case nodes.Binary(Operator.ADD, first, last):
                place = integer(Operator.ADD, integer(Operator.ADD, row, first), last)
            case _:
                place = integer(Operator.ADD, row, one)
    return place


def behind_zeros(place: nodes.Expr, rank: int) -> tuple[nodes.Expr, ...]:
    """Return the index of an element by its number, for an array of this rank: zeros, then the number."""
    return (*[number(0)] * (rank - 1), place)


def has_rows_in_loops(kernel: nodes.Kernel) -> bool:
    """Return True if a loop inside another one uses an array of several axes, so that computing indices once pays."""
    tasks = [part for one in kernel.body if isinstance(one, nodes.For) for part in one.body]
    inner = [one for one in walk.statements(tasks) if isinstance(one, nodes.For | nodes.While)]
    touched = {name for one in inner for name in walk.find_touched(one.body)}
    return any(name in touched and has_rows(one) for name, one in kernel.arrays.items())


def has_rows(array: nodes.Array) -> bool:
    """Return True if a launch passes an array, and it has several axes."""
    return array.rank > 1 and array.is_given


def find_sizes(kernel: nodes.Kernel) -> dict[tuple[str, int], nodes.Expr]:
    """Return the sizes of arrays by name and axis: one expression for all that are known to be equal."""
    same: dict[str | int, nodes.Expr] = {}
    sizes: dict[tuple[str, int], nodes.Expr] = {}
    for array in (one for one in kernel.arrays.values() if one.is_given):
        for axis, dim in enumerate(array.sizes):
            size = number(dim) if isinstance(dim, int) else nodes.Size(array.name, axis)
            sizes[array.name, axis] = size if dim is None else same.setdefault(dim, size)
    return sizes


class _Indexing:
    """Writes one outermost loop with row-major indices.

    An index that statements beside each other have in common is computed once: not for speed, which compilers see to,
    but because engines take long to read expressions.
    """

    def __init__(self, sizes: Mapping[tuple[str, int], nodes.Expr], names: Names) -> None:
        self.sizes = sizes
        self.names = names
        self.size_locals: dict[nodes.Size, nodes.Local] = {}
        self.known: dict[nodes.Expr, nodes.Local] | None = {}
        self.before: list[nodes.Stmt] = []

    def task(self, task: nodes.For) -> nodes.For:
        body = self.block(task.body)
        return replace(task, body=(*(assign(local, size) for size, local in self.size_locals.items()), *body))

    def block(self, body: Sequence[nodes.Stmt]) -> nodes.Block:
        """Rewrite the statements of one block. What is known in it is known in those inside it, not the other way."""
        around = self.known
        self.known = None if around is None else {**around}
        written: list[nodes.Stmt] = []
        for one in body:
            written += self.statement(one)
        self.known = around
        return tuple(written)

    def statement(self, one: nodes.Stmt) -> list[nodes.Stmt]:
        # An assignment reads before it changes its local. A loop's body may run again after it changed one, so there
        # indices that are made of it are unknown from the start.
        given = walk.find_defined([one])
        if not isinstance(one, nodes.Assign):
            self.forget(given)
        self.before = []
        changed = walk.with_expressions(one, self.expression)
        if isinstance(changed, nodes.Store | nodes.Atomic):
            changed = replace(changed, index=self.index(changed.array, changed.index))
        before = self.before
        around = self.known
        if isinstance(one, nodes.For) and one.vector_width:
            # There an index ends with the lane, by which vectors of elements side by side are known.
            self.known = None
        changed = walk.with_bodies(changed, self.block)
        self.known = around
        self.forget(given)
        return [*before, changed]

    def forget(self, given: set[str]) -> None:
        """Drop indices that are computed from locals which are given other values."""
        if self.known is not None:
            self.known = {expr: local for expr, local in self.known.items() if walk.locals_in([expr]).isdisjoint(given)}

    def expression(self, one: nodes.Expr) -> nodes.Expr:
        one = walk.rebuild(one, self.expression)
        match one:
            case nodes.Size(array, axis) if (array, axis) in self.sizes:
                return self.size_of(array, axis)
            case nodes.Load(array, index):
                return replace(one, index=self.index(array, index))
            case _:
                return one

    def size_of(self, array: str, axis: int) -> nodes.Expr:
        size = self.sizes[array, axis]
        if not isinstance(size, nodes.Size):
            return size
        if size not in self.size_locals:
            self.size_locals[size] = self.names.local(f"{size.array}_size", Type.I32)
        return self.size_locals[size]

    def index(self, array: str, index: Sequence[nodes.Expr]) -> tuple[nodes.Expr, ...]:
        if (array, 1) not in self.sizes:
            return tuple(index)
        # As engines do with wider indices.
        places = [cast(one, Type.I32) for one in index]
        place = number_element(places, lambda axis: self.size_of(array, axis), self.share)
        return behind_zeros(place if isinstance(places[-1], nodes.Const) else self.share(place), len(index))

    def share(self, place: nodes.Expr) -> nodes.Expr:
        """Return a local that holds a part of an index, for statements that need the same."""
        # What reads memory is not shared: a statement between two uses may store there.
        is_leaf = isinstance(place, nodes.Local | nodes.Const | nodes.Argument)
        if is_leaf or self.known is None or walk.reads_memory(place):
            return place
        if place not in self.known:
            self.known[place] = self.names.local("at", Type.I32)
            self.before.append(assign(self.known[place], place))
        return self.known[place]
