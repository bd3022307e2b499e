"""Budget: the maximum number of operations of an interpreted run."""

from __future__ import annotations

from .._errors import ShapeError, refusal

OPERATIONS = 400_000
"""Operations that are interpreted at most in one run, about half a minute of them."""


class TooLong(Exception):
    """The budget is spent."""


class Budget:
    """Operations that are left. One is a load, a sum, a sine; about 10 us."""

    def __init__(self, operations: int) -> None:
        self.left = operations

    def count(self, operations: int) -> None:
        """Spend some. Raises TooLong."""
        self.left -= operations
        if self.left < 0:
            raise TooLong


def too_long(who: str, title: str, operations: int, *, line: int) -> ShapeError:
    """The refusal of inputs that take too long."""
    words = f"{who} of {title} was stopped after {operations:,} operations: it runs kernels number by number"
    remedy = (
        "Pass smaller inputs: mistakes show at a few elements a dim. A `while` that never ends looks like this too."
    )
    return ShapeError(refusal(words, [("limit", f"{operations:,} operations"), ("at", f"line {line}")], remedy))
