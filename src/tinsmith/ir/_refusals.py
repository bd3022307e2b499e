"""What the front end does not cover: it raises an error with the line and the construct, and guesses nothing."""

from __future__ import annotations

from typing import NamedTuple

from ..engines import name_place


class Race(NamedTuple):
    """Two accesses of iterations of a parallel loop to one element: what the loop computes depends on their order.

    Attributes:
        change: the element that an iteration changes, as source: `y[i]`.
        other: the element that another iteration reads or changes, as source: `y[i - 1]`.
        change_line, other_line: their lines.
        is_read: whether the other one reads.
    """

    change: str
    change_line: int
    other: str
    other_line: int
    is_read: bool


REWRITE_LINE = "Rewrite that line without this construct"
"""The remedy where nothing better is known."""
RUN_IN_ORDER = "Put the loop inside `for _ in range(1):`, where its iterations run in order"
"""The remedy where the order of a parallel loop's iterations decides."""
IN_A_PARALLEL_LOOP = "Move it into a parallel loop at the kernel's top level"
"""The remedy for what only the threads of a block have."""


class NotCovered(Exception):
    """A kernel uses a construct that the front end does not cover.

    Attributes:
        construct: the source that it cannot lower, or what is wrong with it.
        path, line: where; `place` is both, "file:line".
        race: two accesses that certainly race, where that is the reason: then no gradient is right, the engine's
            neither.
        remedy: what to do, a sentence without its full stop.
        ends_process: whether the engines end the process when they compile or run it.
    """

    def __init__(
        self,
        construct: str,
        line: int,
        path: str,
        race: Race | None = None,
        remedy: str = REWRITE_LINE,
        *,
        ends_process: bool = False,
    ) -> None:
        self.place = name_place(path, line)
        super().__init__(f"{construct}, at {self.place}")
        self.construct = construct
        self.path = path
        self.line = line
        self.race = race
        self.remedy = remedy
        self.ends_process = ends_process


class Misfit(Exception):
    """An operation that the language does not have for these values; becomes a NotCovered with a line."""

    def __init__(self, words: str, remedy: str = REWRITE_LINE) -> None:
        super().__init__(words)
        self.remedy = remedy


class NotANumber(Misfit):
    """Raised for a Python value that is not a number, where one is required."""

    def __init__(self, words: str, value: object) -> None:
        super().__init__(f"{words}, which is not a number")
        self.value = value


class Deadly(Misfit):
    """An operation on which the engines end the process; becomes a NotCovered that says so."""


DIVISION_BY_ZERO = ("a division of an integer by zero", "Divide by a number that is not zero")
"""What `Deadly` is made of for such a division."""
