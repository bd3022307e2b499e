"""What is known of a kernel's IR without running it: one question a file."""

from ._accesses import LoopAccess, Origin, opaque
from ._activity import Activity, Edge, along, differentiated_leaves, edges_of, find_reachable, find_varied
from ._bounds import OutOfRange, find_out_of_range
from ._conflicts import Conflict, Verdict, find_conflicts, find_conflicts_of_loop, find_disjoint_arrays
from ._coverage import PlacedStore, find_covered, find_filled, find_placed_stores
from ._definitions import (
    DefinitionsAndUses,
    Expander,
    PartialExpander,
    definitions,
    expand,
    find_operands,
    single_definitions,
    whole_definitions,
)
from ._derivatives import slopes
from ._evaluate import Numbers, Result, evaluate
from ._forms import is_private
from ._indices import affine, concurrent_loop, find_owned, find_owned_by, is_invariant, moving_variables, shared_atomics
from ._liveness import Live, Liveness, find_private_loops
from ._order import find_ordered_atomic
from ._ranges import Range, Ranges
from ._tasks import tasks_of
from ._text import describe_access, describe_conflict, describe_sum

__all__ = [
    "Activity",
    "Conflict",
    "DefinitionsAndUses",
    "Edge",
    "Expander",
    "Live",
    "Liveness",
    "LoopAccess",
    "Numbers",
    "Origin",
    "OutOfRange",
    "PartialExpander",
    "PlacedStore",
    "Range",
    "Ranges",
    "Result",
    "Verdict",
    "affine",
    "along",
    "concurrent_loop",
    "definitions",
    "describe_access",
    "describe_conflict",
    "describe_sum",
    "differentiated_leaves",
    "edges_of",
    "evaluate",
    "expand",
    "find_conflicts",
    "find_conflicts_of_loop",
    "find_covered",
    "find_disjoint_arrays",
    "find_filled",
    "find_operands",
    "find_ordered_atomic",
    "find_out_of_range",
    "find_owned",
    "find_owned_by",
    "find_placed_stores",
    "find_private_loops",
    "find_reachable",
    "find_varied",
    "is_invariant",
    "is_private",
    "moving_variables",
    "opaque",
    "shared_atomics",
    "single_definitions",
    "slopes",
    "tasks_of",
    "whole_definitions",
]
