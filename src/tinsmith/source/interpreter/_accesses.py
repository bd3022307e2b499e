"""Accesses: which iteration of which loop touched which element, and on which line.

Off unless somebody is given to tell: then the interpreter tells of each access as it happens. `Record` keeps them
all. What they say of races, reads before writes and overwritten values is for others to find.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from ._casts import Number

How: TypeAlias = Literal["read", "write", "atomic"]


class Recorder(Protocol):
    """Receives accesses."""

    def enter(self, task: int, iteration: tuple[int, ...] = ()) -> None:
        """What follows belongs to this iteration."""

    def add(
        self, how: How, array: str, position: int, line: int, operator: str = "", value: Number | None = None
    ) -> None:
        """An access of the present iteration; `operator` is an atomic's, `value` what is written or combined."""


class Access(NamedTuple):
    """One access.

    Attributes:
        how: "read", "write", or "atomic": both at once.
        array: its name in the kernel.
        position: of the number in the array, counted in memory order, an element's entries last.
        line: of the statement, as the kernel counts them.
        task: which statement of the kernel's top level it was, counted from 0.
        iteration: values of that loop's names; () in a statement that is not a loop.
    """

    how: How
    array: str
    position: int
    line: int
    task: int
    iteration: tuple[int, ...]


@dataclass
class Record:
    """All accesses of one run, in the order in which they happened."""

    accesses: list[Access] = field(default_factory=list)
    task: int = 0
    iteration: tuple[int, ...] = ()

    def enter(self, task: int, iteration: tuple[int, ...] = ()) -> None:
        """What follows belongs to this iteration."""
        self.task, self.iteration = task, iteration

    def add(
        self, how: How, array: str, position: int, line: int, operator: str = "", value: Number | None = None
    ) -> None:
        """Note an access of the present iteration; what was written is not kept."""
        self.accesses.append(Access(how, array, position, line, self.task, self.iteration))
