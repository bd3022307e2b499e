"""The result of `ndrange`, and UNSET, the value of a local that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ._operations import Operations
from ._values import Matrix

UNSET = type("Unset", (), {"__repr__": lambda _: "not set"})()
"""The value of a local that is assigned only in the branch of a `ti.static` condition that was not chosen."""


class Ranges:
    """The result of `ndrange`: the first value and end of each dim.

    `order` lists the dims from the outermost loop to the innermost.
    """

    def __init__(self, bounds: list[tuple[Any, Any]], order: tuple[int, ...], operations: Operations) -> None:
        self.bounds, self.order, self._operations = bounds, order, operations
        self.is_grouped = False

    def __iter__(self) -> Iterator[Any]:
        """Yield Python integers, as a loop over `ti.static` does."""
        return self._walk(lambda _dim, value: value)

    def run(self) -> Iterator[Any]:
        """Yield NumPy integers, as a loop of a kernel does."""
        plain = self._operations.binary("+")
        kinds = [type(plain(np.int32(0), first)) for first, _ in self.bounds]
        return self._walk(lambda dim, value: np.int32(value) if self.is_grouped else kinds[dim](value))

    def _walk(self, number: Callable[[int, int], Any]) -> Iterator[Any]:
        order = self.order or tuple(range(len(self.bounds)))
        places = [order.index(dim) for dim in range(len(order))]
        ranges = [range(int(self.bounds[dim][0]), int(self.bounds[dim][1])) for dim in order]
        for at in walk_ranges(ranges):
            values = [number(dim, at[place]) for dim, place in enumerate(places)]
            if self.is_grouped:
                yield Matrix((len(values),), values, self._operations)
            else:
                yield values[0] if len(values) == 1 else tuple(values)


def walk_ranges(ranges: list[range]) -> Iterator[tuple[int, ...]]:
    """Yield every combination of values, with the last range varying fastest.

    `itertools.product` would make a list of each range, which may have billions of values.
    """
    if not ranges:
        yield ()
        return
    for first in ranges[0]:
        for rest in walk_ranges(ranges[1:]):
            yield (first, *rest)
