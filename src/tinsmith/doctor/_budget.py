"""Budget: the maximum number of operations in an interpreted run."""

from __future__ import annotations

from .._errors import ShapeError, refusal

OPERATIONS = 400_000
"""The maximum number of operations in one interpreted run, which takes about half a minute."""


class TooLong(Exception):
    """Raised when an interpreted run exceeds its budget."""


class Budget:
    """The number of operations that an interpreted run may still execute. An operation is a load, a sum or a sine;
    about 10 us.
    """

    def __init__(self, operations: int) -> None:
        self.left = operations

    def count(self, operations: int) -> None:
        """Subtract operations from the budget. Raise TooLong if it is exceeded."""
        self.left -= operations
        if self.left < 0:
            raise TooLong


def build_too_long_error(who: str, title: str, operations: int, *, line: int) -> ShapeError:
    """Build the error for a run that exceeded its budget: `who` ran `title`, and stopped at `line`."""
    words = f"{who} of {title} was stopped after {operations:,} operations: it runs kernels number by number"
    remedy = (
        "Pass smaller inputs: mistakes show at a few elements a dim. A `while` that never ends looks like this too."
    )
    return ShapeError(refusal(words, [("limit", f"{operations:,} operations"), ("at", f"line {line}")], remedy))
