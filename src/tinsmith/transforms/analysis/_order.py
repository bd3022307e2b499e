"""Order: atomics of a parallel loop whose result depends on which iteration comes first."""

from __future__ import annotations

from ...source.ir import nodes, types, walk
from ._indices import concurrent_loop, find_owned

_ROUNDED = ("add", "sub", "mul")
"""Operators that round floats, so that another order gives other last digits."""


def find_ordered_atomic(kernel: nodes.Kernel) -> nodes.Atomic | None:
    """The first atomic by which two runs may differ: it rounds what iterations share, or returns a value."""
    for loop in filter(None, map(concurrent_loop, kernel.body)):
        atomics = [one for one in walk.stores(loop.body) if isinstance(one, nodes.Atomic)]
        own = find_owned(loop) if atomics else frozenset[str]()
        for one in atomics:
            is_rounded = one.operator in _ROUNDED and types.is_float(one.value.type)
            if one.array not in own and (is_rounded or one.result is not None):
                return one
    return None
