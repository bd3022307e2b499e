"""Sums: the adjoint of an element that a loop reads again and again is gathered in a local, and added once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...source.ir import nodes
from .._names import Names
from ..analysis import expand


@dataclass(frozen=True)
class Total:
    """A local that gathers for one element."""

    load: nodes.Load
    local: str


@dataclass
class Frame:
    """What can be named in a frame, and what is gathered there.

    Attributes:
        names: its locals.
        definitions: what some of them are computed from.
    """

    names: frozenset[str]
    definitions: Mapping[str, nodes.Expr]
    totals: list[Total] = field(default_factory=list)


class Sums:
    """The frames that are open, the outermost first."""

    Total = Total

    def __init__(self, names: Names) -> None:
        self.names = names
        self.frames: list[Frame] = []

    @contextlib.contextmanager
    def inside(self, frame: Frame) -> Iterator[None]:
        """While a frame is being reversed."""
        self.frames.append(frame)
        try:
            yield
        finally:
            self.frames.pop()

    def total(self, load: nodes.Load) -> nodes.Local | None:
        """The local that gathers a load's adjoint in the outermost frame that can name the element.

        None if that is the frame of the load.
        """
        definitions = {name: value for frame in self.frames for name, value in frame.definitions.items()}
        known: set[str] = set()
        for frame in self.frames[:-1]:
            known |= frame.names
            index = [expand(one, known, definitions) for one in load.index]
            if all(one is not None for one in index):
                return self._total_in(frame, replace(load, index=tuple(one for one in index if one is not None)))
        return None

    def _total_in(self, frame: Frame, load: nodes.Load) -> nodes.Local:
        for total in frame.totals:
            if total.load == load:
                return nodes.Local(total.local, load.type)
        local = self.names.fresh(f"grad_{load.array}_sum", load.type)
        frame.totals.append(Total(load, local))
        return nodes.Local(local, load.type)
