"""Accesses: which iteration of which loop touched which element, and on which line.

Off unless a `Record` is given: then the interpreter tells it of each access. What a record says of
races, reads before writes and overwritten values is for others to find in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

How: TypeAlias = Literal["read", "write", "atomic"]


class Access(NamedTuple):
    """One access.

    Attributes:
        how: "read", "write", or "atomic": both at once.
        array: its name in the kernel.
        position: of the number in the array, counted in memory order, an element's entries last.
        line: of the statement, as the kernel counts them.
        task: which statement of the kernel's top level it was, counted from 0.
        iteration: values of that loop's names; () in a statement that is no loop.
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

    def add(self, how: How, array: str, position: int, line: int) -> None:
        """Note an access of the present iteration."""
        self.accesses.append(Access(how, array, position, line, self.task, self.iteration))
