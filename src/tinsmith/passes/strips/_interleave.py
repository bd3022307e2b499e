"""Interleave: an elementwise loop in which each iteration works on four elements, for GPUs.

    parallel for i in 0 .. n:             parallel for group in 0 .. ((n - 1 >> 7) + 1 << 5):
        z[i] = 2.5 * x[i] + y[i]   ->         first = ((group & -32) << 2) + (group & 31)
                                              if n - first > 96:
                                                  x_at = x[first]; x_at_1 = x[first + 32]; ...; y_at = y[first]; ...
                                                  z[first] = 2.5 * x_at + y_at; z[first + 32] = ...
                                              else:
                                                  for part in 0 .. 4:
                                                      i = first + (part << 5)
                                                      if i < n: z[i] = 2.5 * x[i] + y[i]

A GPU hides the time of a load by other loads that wait at the same time. A thread that loads four bytes, and stores
before it loads again, keeps too few of them in flight for the memory of a large GPU
(docs/about/decisions/device-code.md). Here it has four of each array: all loads come before the first store, which
compilers could not arrange, since a store may have changed what comes next. The 32 threads of a warp work on 128
elements side by side, so that each of their loads and stores still covers whole cache lines.

An iteration of the new loop reads all that it needs before it stores anything, so the conditions are those of strips
(`is_elementwise`).
"""

from __future__ import annotations

from dataclasses import replace

from ...ir import Names, Operator, Type, compare, integer, minus, nodes, number, plus, walk
from ._elementwise import Index, compute_values, count_accesses, is_elementwise
from ._parts import assign, at_line, run_lanes
from .lanes import operations

_WARP = 32
"""The number of threads that an NVIDIA GPU runs in lockstep. On GPUs with another number results are the same, but
memory accesses are coalesced less well."""
_GROUP = 4
"""The number of elements of each array that one iteration processes."""
_SHIFT = 2
"""The power of two that `_GROUP` is."""
_MOST_ACCESSES = 8
"""The maximum number of elements that an iteration of the original loop loads and stores. The new iteration keeps four
times as many values in registers."""
_MOST_OPERATIONS = 64
"""Operations of an iteration at most: with more, arithmetic takes longer than memory, and four copies compile long."""


def interleave_loops(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return a kernel whose elementwise parallel loops work on four elements an iteration; the same object if none."""
    names = Names.of_kernel(kernel)
    # A local of the top level is memory, which all iterations share.
    carried = walk.find_defined([one for one in kernel.body if not isinstance(one, nodes.For)])
    tasks = [
        _interleave(one, kernel, names) if isinstance(one, nodes.For) and _fits(one, kernel, carried) else one
        for one in kernel.body
    ]
    body = walk.keep_block(kernel.body, tasks)
    return kernel if body is kernel.body else replace(kernel, body=body, locals=names.types)


def _fits(loop: nodes.For, kernel: nodes.Kernel, carried: set[str]) -> bool:
    return (
        loop.is_parallel
        and len(loop.names) == 1
        and all(bound.type == Type.I32 for bound in loop.bounds[0])
        and is_elementwise(loop, kernel)
        and count_accesses(loop) <= _MOST_ACCESSES
        and operations(loop.body) <= _MOST_OPERATIONS
        and carried.isdisjoint(walk.find_defined(loop.body))
    )


def _interleave(loop: nodes.For, kernel: nodes.Kernel, names: Names) -> nodes.For:
    (begin, end), index = loop.bounds[0], nodes.Local(loop.names[0], Type.I32)
    names.types[index.name] = Type.I32
    group, first, part = (names.local(wish, Type.I32) for wish in ("group", "first", "part"))
    loaded: dict[nodes.Load, nodes.Local] = {}
    numbers: list[nodes.Stmt] = []
    values: list[nodes.Stmt] = []
    stores: list[nodes.Stmt] = []
    given = dict.fromkeys(name for one in loop.body for name in walk.find_assigned(one))

    for copy in range(_GROUP):
        fresh = {name: names.local(name, names.types[name]) for name in (index.name, *given)}
        own = fresh[index.name]
        numbers.append(assign(own, plus(first, number(copy * _WARP))))

        def move(place: Index, own: nodes.Local = own) -> Index:
            return tuple(walk.substitute(one, {index.name: own}) for one in place)

        def load(one: nodes.Load, place: Index, own: nodes.Local = own) -> nodes.Expr:
            # One element for all iterations is loaded where it is needed.
            if index.name not in walk.locals_in(place):
                return replace(one, index=place)
            moved = replace(one, index=move(place, own))
            return loaded.setdefault(moved, names.local(f"{one.array}_at", one.type))

        computed, stored = compute_values(loop, kernel, names, fresh, load, convert=lambda one: one)
        values += computed
        stores += [nodes.Store(array, move(place), (), value) for (array, place), value in stored.items()]

    loads = [assign(local, one) for one, local in loaded.items()]
    in_range = nodes.If(compare(Operator.LT, index, end), loop.body)
    place = integer(Operator.ADD, first, integer(Operator.SHIFT_LEFT, part, number(_WARP.bit_length() - 1)))
    rest = run_lanes(part, number(0), number(_GROUP), [assign(index, place), in_range])
    is_whole = compare(Operator.GT, integer(Operator.SUB, end, first), number((_GROUP - 1) * _WARP))
    body = [assign(first, _first_of(group, begin)), nodes.If(is_whole, (*numbers, *loads, *values, *stores), (rest,))]
    bounds = ((number(0), _count_groups(begin, end)),)
    return replace(loop, names=(group.name,), bounds=bounds, body=at_line(body, loop.line))


def _first_of(group: nodes.Local, begin: nodes.Expr) -> nodes.Expr:
    """Return the index of the first element that a thread processes. Threads of a warp begin at adjacent elements."""
    warp = integer(Operator.SHIFT_LEFT, integer(Operator.BIT_AND, group, number(-_WARP)), number(_SHIFT))
    return plus(begin, integer(Operator.ADD, warp, integer(Operator.BIT_AND, group, number(_WARP - 1))))


def _count_groups(begin: nodes.Expr, end: nodes.Expr) -> nodes.Expr:
    """Return the number of groups between two indices: of whole warps, without a sum that could overflow."""
    block = (_WARP * _GROUP).bit_length() - 1
    last = integer(Operator.SHIFT_RIGHT, integer(Operator.SUB, minus(end, begin), number(1)), number(block))
    return integer(Operator.SHIFT_LEFT, integer(Operator.ADD, last, number(1)), number(_WARP.bit_length() - 1))
