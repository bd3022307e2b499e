"""Python values that a kernel bakes in: where they are reached, and which of them changed."""

from ._constants import Constants, constants_of, find_changed_value
from ._value_changes import Change, number_of

__all__ = [
    "Change",
    "Constants",
    "constants_of",
    "find_changed_value",
    "number_of",
]
