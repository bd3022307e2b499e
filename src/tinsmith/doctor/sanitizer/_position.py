"""The position of the interpreter: the running kernel, task and iteration, and their names in messages."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ...ir import nodes, walk

_TARGET = re.compile(r"\bfor\s+(.+?)\s+in\b")


class Place(NamedTuple):
    """An iteration of a task of a kernel. Equal places are the same iteration."""

    kernel: int
    task: int
    iteration: tuple[int, ...]


class Spot(NamedTuple):
    """A line in an iteration. `turn` has the variables' values of the inner loops around the line."""

    kernel: nodes.Kernel
    place: Place
    line: int
    turn: tuple[int, ...]


class ExecutionPosition:
    """The current position of a run.

    Attributes:
        kernel: the running kernel.
        place: its number in the op, its task and iteration.
        is_parallel: whether the task's iterations have no order.
        held: the current values of the kernel's locals.
    """

    def __init__(self) -> None:
        self.kernel = nodes.Kernel("", "", {}, {}, {}, ())
        self.place = Place(0, 0, ())
        self.is_parallel = False
        self.held: Mapping[str, Any] = {}
        self._arrays: Mapping[str, torch.Tensor] = {}
        self._loops: dict[int, tuple[nodes.For, ...]] = {}
        self._turning: dict[int, tuple[str, ...]] = {}

    def begin(self, kernel: nodes.Kernel, number: int, arrays: Mapping[str, torch.Tensor]) -> None:
        """Begin a kernel on these arrays."""
        if kernel is not self.kernel:
            self._loops = dict(_inner_loops(kernel.body))
            self._turning = {line: tuple([n for one in of for n in one.names]) for line, of in self._loops.items()}
        self.kernel, self._arrays = kernel, arrays
        self.place = Place(number, 0, ())

    def enter(self, task: int, iteration: tuple[int, ...]) -> None:
        """Begin an iteration of a task of the current kernel."""
        self.place = Place(self.place.kernel, task, iteration)
        stmt = self.kernel.body[task]
        self.is_parallel = isinstance(stmt, nodes.For) and (stmt.is_parallel or stmt.may_race)

    def find_label(self, array: str) -> str:
        """Return the name of an array in the source."""
        return self.kernel.arrays[array].label or array

    def shape(self, array: str) -> tuple[int, ...]:
        """Return the sizes of an array's index dims, without its element dims."""
        rank = self.kernel.arrays[array].rank
        return tuple(self._arrays[array].shape[:rank]) if array in self._arrays else ()

    def element(self, array: str, position: int) -> str:
        """Format an element as in the source: `x[1, 2]`; an entry of a vector follows in a second pair of brackets."""
        held = self.kernel.arrays[array]
        if array in self.kernel.cells:
            return f"the local `{array}`"
        index, entry = [], []
        for size in reversed(held.element):
            position, rest = divmod(position, size)
            entry.insert(0, rest)
        shape = self.shape(array)
        for size, start in reversed(list(zip(shape, held.offset or (0,) * len(shape), strict=True))):
            position, rest = divmod(position, size)
            index.insert(0, rest + start)
        inside = ", ".join(map(str, index)) if held.rank else "None"
        tail = f"[{', '.join(map(str, entry))}]" if entry else ""
        return f"`{self.find_label(array)}[{inside}]{tail}`"

    def spot(self, line: int) -> Spot:
        """Return a line in the current iteration as a `Spot`."""
        held = self.held
        return Spot(self.kernel, self.place, line, tuple([held.get(name, 0) for name in self._turning.get(line, ())]))

    def inside(self, line: int) -> str:
        """Return the current iteration as words that continue a sentence, " in iteration i = 3"; "" outside
        of loops.
        """
        return self.within(self.spot(line))

    def within(self, spot: Spot) -> str:
        """Return the iteration of a spot as words that continue a sentence, " in iteration i = 3"; "" outside
        of loops.
        """
        kernel, place = spot.kernel, spot.place
        stmt = kernel.body[place.task] if place.task < len(kernel.body) else None
        named = []
        if isinstance(stmt, nodes.For) and place.iteration:
            named.append(_format_indices(kernel.path, stmt, place.iteration))
        turn = list(spot.turn)
        for loop in dict(_inner_loops(kernel.body)).get(spot.line, ()):
            named.append(_format_indices(kernel.path, loop, tuple(turn[: len(loop.names)])))
            del turn[: len(loop.names)]
        return f" in iteration {', '.join(named)}" if named else ""

    def list_known_values(self, line: int) -> dict[str, int]:
        """Return the current values of sizes and of the loop variables around a line, by their expressions in the
        source.
        """
        stmt = self.kernel.body[self.place.task]
        shapes = {self.find_label(name): self.shape(name) for name in self.kernel.arrays}
        values = {f"{name}.shape[{axis}]": size for name, shape in shapes.items() for axis, size in enumerate(shape)}
        for loop in [*([stmt] if isinstance(stmt, nodes.For) else []), *self._loops.get(line, ())]:
            names = _names(self.kernel.path, loop)
            if len(names) == len(loop.names):
                values |= {name: self.held.get(own, 0) for name, own in zip(names, loop.names, strict=True)}
        return values


def _inner_loops(
    body: Sequence[nodes.Stmt], loops: tuple[nodes.For, ...] = (), depth: int = 0
) -> Iterator[tuple[int, tuple[nodes.For, ...]]]:
    """Yield the line of each statement inside inner loops, with these loops. The task's own loop is left out."""
    for stmt in body:
        if loops:
            yield stmt.line, loops
        inside = (*loops, stmt) if isinstance(stmt, nodes.For) and depth else loops
        for part in walk.bodies(stmt):
            yield from _inner_loops(part, inside, depth + 1)


def _names(path: str, loop: nodes.For) -> list[str]:
    """Return the names of a loop's variables in the source, or those in the IR if the line cannot be parsed."""
    match = _TARGET.search(linecache.getline(path, loop.line))
    return [one.strip() for one in match[1].strip("()").split(",")] if match else list(loop.names)


def _format_indices(path: str, loop: nodes.For, values: tuple[int, ...]) -> str:
    names = _names(path, loop)
    if len(names) == len(values):
        return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    if len(names) == 1:
        return f"{names[0]} = [{', '.join(map(str, values))}]"
    return ", ".join(f"{name} = {value}" for name, value in zip(loop.names, values, strict=True))
