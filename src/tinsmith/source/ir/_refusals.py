"""What the front end does not know: it says so, with the line and the construct, and guesses nothing."""

from __future__ import annotations


class NotCovered(Exception):
    """A kernel uses what the front end does not know.

    Attributes:
        construct: the source that it cannot lower, or what is wrong with it.
        line, place: where; `place` is "file:line".
    """

    def __init__(self, construct: str, line: int, place: str) -> None:
        super().__init__(f"{construct}, at {place}")
        self.construct = construct
        self.line = line
        self.place = place


class Misfit(Exception):
    """An operation that the language has not, for these values; becomes a NotCovered with a line."""
