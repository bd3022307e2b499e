"""Memory: finds unwritten elements, reads before writes, and values that are overwritten after they were read, in a
run.

Elements of inputs and fields have values from the start; those of outputs and scratch get them from a kernel, or from
an earlier kernel of a chain. `_races` finds races.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch

from ...engines import How, Number
from ...frontend import Columns
from ...ir import walk
from ...linter import ENGINES, Finding, Severity
from ._log import Log
from ._position import ExecutionPosition, Spot
from ._races import Races


class Memory:
    """Observes all accesses of a run.

    `made` are outputs and scratch, `empty` those of them that start uninitialized. The `outputs` among the latter must
    be written completely.
    """

    def __init__(
        self,
        here: ExecutionPosition,
        log: Log,
        columns: Columns,
        made: Iterable[str],
        empty: frozenset[str],
        outputs: Iterable[str],
    ) -> None:
        self._here = here
        self._log = log
        self._columns = columns
        self._allocations = frozenset(made)
        self._empty = empty
        self._filled = empty.intersection(outputs)
        self._races = Races(here, log, columns)
        self._written: set[tuple[str, int]] = set()
        self._reads: dict[tuple[str, int], Spot] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._stores: dict[str, tuple[str, int]] = {}

    def begin(self, arrays: Mapping[str, torch.Tensor], *, is_new_sample: bool) -> None:
        """Begin a kernel on these arrays. For a new sample of a batch, all memory counts as new."""
        self._races.begin()
        if is_new_sample:
            self.end()
            self._written.clear()
            self._reads.clear()
        kernel = self._here.kernel
        for name in self._filled & arrays.keys():
            self._shapes[name] = tuple(arrays[name].shape)
            lines = [stmt.line for stmt in walk.stores(kernel.body) if stmt.array == name]
            if lines:
                self._stores.setdefault(name, (kernel.path, lines[0]))

    def end(self) -> None:
        """Report elements that were never written, after all kernels of a sample."""
        for name, shape in self._shapes.items():
            written = {position for array, position in self._written if array == name}
            missing = [position for position in range(math.prod(shape)) if position not in written]
            if missing:
                self._report_never_written(name, shape, missing)
        self._shapes.clear()

    def _report_never_written(self, name: str, shape: tuple[int, ...], missing: list[int]) -> None:
        path, line = self._stores.get(name, (self._here.kernel.path, 1))

        def words() -> Finding:
            index = ", ".join(str(int(at)) for at in torch.unravel_index(torch.tensor(missing[0]), shape))
            element = f"`{name}[{index or 'None'}]`"
            first = (
                f"{element} is" if len(missing) == 1 else f"{len(missing):,} elements of `{name}`, as {element}, are"
            )
            what = f'{first} never written, and `{name}` starts uninitialized, since its `init` is "empty"'
            remedy = f'leave "{name}" out of `init`, so that it starts at zero; or write all of it'
            return Finding(
                "TS610", "error", path, *self._columns.element(path, line, name, is_read=False), what, remedy
            )

        self._log.note("TS610", "error", path, line, name, words)

    def enter(self, task: int, iteration: tuple[int, ...] = ()) -> None:
        """Begin an iteration of a task."""
        if task != self._here.place.task:
            self._races.begin()
        self._here.enter(task, iteration)

    def add(
        self, how: How, array: str, position: int, line: int, operator: str = "", value: Number | None = None
    ) -> None:
        """Record an access of the current iteration, and report what is wrong with it."""
        if self._here.is_parallel:
            self._races.add(how, array, position, line, operator, value)
        if array in self._here.kernel.cells:
            return
        element = array, position
        if array in self._allocations and element not in self._written:
            self._report_unwritten(how, array, position, line)
        if how == "read":
            self._reads[element] = self._here.spot(line)
            return
        self._written.add(element)
        self._stores[array] = self._here.kernel.path, line
        if element in self._reads:
            self._report_overwritten(self._reads.pop(element), array, position, line)

    def _report_unwritten(self, how: How, array: str, position: int, line: int) -> None:
        is_empty = array in self._empty
        if how == "write" or (how == "atomic" and not is_empty):
            return  # outputs start at zero so that kernels can add to them
        severity: Severity = "error" if is_empty else "warning"
        here = self._here

        def words() -> Finding:
            element, name = here.element(array, position), here.find_label(array)
            if is_empty:
                what = f"{element} is read{here.inside(line)} before it is written, and `{name}` starts uninitialized"
                what += ', since its `init` is "empty"'
                remedy = f'leave "{name}" out of `init`, so that it starts at zero; or write the element first'
            else:
                what = f"{element} is read{here.inside(line)} before it is written: the read returns zero"
                remedy = ""
            place = self._columns.element(here.kernel.path, line, name, is_read=True if how == "read" else None)
            return Finding("TS602", severity, here.kernel.path, *place, what, remedy)

        self._log.note("TS602", severity, here.kernel.path, line, array, words)

    def _report_overwritten(self, read: Spot, array: str, position: int, line: int) -> None:
        here = self._here

        def words() -> Finding:
            element, before = here.element(array, position), _describe_read(here, read)
            what = f"{element} is overwritten{here.inside(line)}, after its value was read on {before}: tinsmith's "
            what += "gradient keeps that value, an engine's own reverse pass takes the new one in its place"
            place = self._columns.element(here.kernel.path, line, here.find_label(array), is_read=False)
            return Finding("TS603", "warning", here.kernel.path, *place, what, engines=ENGINES)

        self._log.note("TS603", "warning", here.kernel.path, line, array, words)


def _describe_read(here: ExecutionPosition, read: Spot) -> str:
    """Return line and iteration of an earlier read, in words for a finding about the current access."""
    if read.place.kernel != here.place.kernel:
        return f"line {read.line}, by an earlier kernel"
    return f"line {read.line}{here.within(read)}"
