"""Clean-up passes, which change no result: they remove what is not needed, and leave code that reads as if written."""

from ._additions import find_added_value, write_out_addition
from ._dead_code import eliminate_dead_code, live_before
from ._declarations import declare_locals, name_locals
from ._inline_sizes import inline_sizes
from ._simplify import simplify

__all__ = [
    "declare_locals",
    "eliminate_dead_code",
    "find_added_value",
    "inline_sizes",
    "live_before",
    "name_locals",
    "simplify",
    "write_out_addition",
]
