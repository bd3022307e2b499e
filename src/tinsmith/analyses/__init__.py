"""What is known of a kernel's IR without running it: one question a file."""

from ._accesses import LoopAccess, Origin, opaque
from ._conflicts import Conflict, Verdict, find_conflicts, find_conflicts_of_loop, find_disjoint_arrays
from ._evaluate import Numbers, Result, evaluate
from ._forms import is_private
from ._text import describe_access, describe_conflict

__all__ = [
    "Conflict",
    "LoopAccess",
    "Numbers",
    "Origin",
    "Result",
    "Verdict",
    "describe_access",
    "describe_conflict",
    "evaluate",
    "find_conflicts",
    "find_conflicts_of_loop",
    "find_disjoint_arrays",
    "is_private",
    "opaque",
]
