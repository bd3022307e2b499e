"""Sums: the adjoint of an element that a loop reads again and again is gathered in a local, and added once.

    for k in range(n):                                grad_w_sum = 0.0
        grad_w[i] += grad_y[k] * x[k]                 for k in range(n):
                                              ->          grad_w_sum = grad_w_sum + grad_y[k] * x[k]
                                                      if not grad_w_sum == 0.0:
                                                          grad_w[i] += grad_w_sum

`grad_w_sum` belongs to the outermost frame that can name the element: here that of `i`.
"""

from __future__ import annotations

import contextlib
from collections import ChainMap
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

from ....analyses import PartialExpander
from ....ir import Names, nodes


@dataclass
class Frame:
    """What can be named in a frame, and what is gathered there.

    Attributes:
        names: its locals.
        definitions: what some of them are computed from.
        totals: locals that gather for elements, by a load of each; `lines` are those of the first loads.
    """

    names: frozenset[str]
    definitions: MutableMapping[str, nodes.Expr]
    totals: dict[nodes.Load, nodes.Local] = field(default_factory=dict)
    lines: dict[nodes.Load, int] = field(default_factory=dict)


class _NamesOf:
    """The locals of several frames."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = frames

    def __contains__(self, name: object) -> bool:
        return any(name in one.names for one in self._frames)


class Sums:
    """The frames that are open, the outermost first.

    Attributes:
        names: gives names to locals.
        frames: the frames.
        open_totals: the locals that gather in them.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.frames: list[Frame] = []
        self.open_totals: set[str] = set()
        self._expanders: list[list[PartialExpander]] = []

    @contextlib.contextmanager
    def inside(self, frame: Frame) -> Iterator[None]:
        """Enter a context in which `frame` is the innermost frame that is being reversed."""
        # Views, since the task's own frame is as large as the task, and is outside of each loop.
        definitions = ChainMap(*(one.definitions for one in (frame, *reversed(self.frames))))
        known = (_NamesOf(self.frames[: count + 1]) for count in range(len(self.frames)))
        # One for each frame outside this one, with what can be named
        # there; made once, since each load of the frame asks.
        self._expanders.append([PartialExpander(names, definitions) for names in known])
        self.frames.append(frame)
        try:
            yield
        finally:
            self.open_totals.difference_update(total.name for total in self.frames.pop().totals.values())
            self._expanders.pop()

    def total(self, load: nodes.Load, line: int) -> nodes.Local | None:
        """Return the local that gathers a load's adjoint in the outermost frame that can name the element.

        Return None if that is the frame of the load, which is in `line`.
        """
        for frame, expand in zip(self.frames, self._expanders[-1], strict=False):
            index = [expand(one) for one in load.index]
            if all(one is not None for one in index):
                element = replace(load, index=tuple(one for one in index if one is not None))
                if element not in frame.totals:
                    frame.totals[element] = self.names.local(f"grad_{load.array}_sum", load.type)
                    frame.lines[element] = line
                    self.open_totals.add(frame.totals[element].name)
                return frame.totals[element]
        return None
