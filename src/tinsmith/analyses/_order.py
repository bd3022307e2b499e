"""Order: atomics of a parallel loop whose result depends on which iteration comes first."""

from __future__ import annotations

from ..ir import nodes, types
from ._indices import concurrent_loop, shared_atomics

_ROUNDED = ("add", "sub", "mul")
"""Operators that round floats, so that another order gives other last digits."""


def find_ordered_atomic(kernel: nodes.Kernel) -> nodes.Atomic | None:
    """Return the first atomic by which two runs may differ: it rounds a shared sum or product, or returns a value."""
    for loop in filter(None, map(concurrent_loop, kernel.body)):
        for one in shared_atomics(loop):
            if one.result is not None or (one.operator in _ROUNDED and types.is_float(one.value.type)):
                return one
    return None
