"""Here: which kernel, which task and which iteration of it is running, and how people call those."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from typing import NamedTuple

import torch

from ...source.ir import nodes

_TARGET = re.compile(r"\bfor\s+(.+?)\s+in\b")


class Place(NamedTuple):
    """An iteration of a task of a kernel. Two are the same iteration where they are equal."""

    kernel: int
    task: int
    iteration: tuple[int, ...]


class Here:
    """Where a run is.

    Attributes:
        kernel: the kernel that runs.
        place: its number in the op, its task and iteration.
        is_parallel: whether the task's iterations have no order.
    """

    def __init__(self) -> None:
        self.kernel = nodes.Kernel("", "", {}, {}, {}, ())
        self.place = Place(0, 0, ())
        self.is_parallel = False
        self._arrays: Mapping[str, torch.Tensor] = {}

    def begin(self, kernel: nodes.Kernel, number: int, arrays: Mapping[str, torch.Tensor]) -> None:
        """A kernel is run on arrays."""
        self.kernel, self._arrays = kernel, arrays
        self.place = Place(number, 0, ())

    def enter(self, task: int, iteration: tuple[int, ...]) -> None:
        """What follows belongs to an iteration of the kernel that runs."""
        self.place = Place(self.place.kernel, task, iteration)
        stmt = self.kernel.body[task]
        self.is_parallel = isinstance(stmt, nodes.For) and stmt.is_parallel

    def called(self, array: str) -> str:
        """What the source calls an array."""
        return self.kernel.arrays[array].label or array

    def shape(self, array: str) -> tuple[int, ...]:
        """Sizes that an index of an array has."""
        rank = self.kernel.arrays[array].rank
        return tuple(self._arrays[array].shape[:rank]) if array in self._arrays else ()

    def element(self, array: str, position: int) -> str:
        """An element as the source would name it: `x[1, 2]`; an entry of a vector has a bracket of its own."""
        held = self.kernel.arrays[array]
        if array in self.kernel.cells:
            return f"the local `{array}`"
        index, entry = [], []
        for size in reversed(held.element):
            position, rest = divmod(position, size)
            entry.insert(0, rest)
        for size in reversed(self.shape(array)):
            position, rest = divmod(position, size)
            index.insert(0, rest)
        inside = ", ".join(map(str, index)) if held.rank else "None"
        tail = f"[{', '.join(map(str, entry))}]" if entry else ""
        return f"`{self.called(array)}[{inside}]{tail}`"

    def inside(self, place: Place | None = None, kernel: nodes.Kernel | None = None) -> str:
        """Words that go on a sentence, " in iteration i = 3"; of a statement that is no loop, none."""
        place, kernel = place or self.place, kernel or self.kernel
        stmt = kernel.body[place.task] if place.task < len(kernel.body) else None
        if not place.iteration or not isinstance(stmt, nodes.For):
            return ""
        return " in iteration " + _named(kernel.path, stmt, place.iteration)

    def variables(self) -> dict[str, int]:
        """Values of the present iteration's names, as the source writes them."""
        stmt = self.kernel.body[self.place.task]
        if not isinstance(stmt, nodes.For):
            return {}
        names = _names(self.kernel.path, stmt)
        return dict(zip(names, self.place.iteration, strict=True)) if len(names) == len(self.place.iteration) else {}

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Sizes of arrays, by what the source calls them."""
        return {self.called(name): self.shape(name) for name in self.kernel.arrays if name in self._arrays}


def _names(path: str, loop: nodes.For) -> list[str]:
    """The names that a loop's line gives its variables."""
    found = _TARGET.search(linecache.getline(path, loop.line))
    return [one.strip() for one in found[1].strip("()").split(",")] if found else list(loop.names)


def _named(path: str, loop: nodes.For, values: tuple[int, ...]) -> str:
    names = _names(path, loop)
    if len(names) == len(values):
        return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    if len(names) == 1:
        return f"{names[0]} = [{', '.join(map(str, values))}]"
    return ", ".join(f"{name} = {value}" for name, value in zip(loop.names, values, strict=True))
