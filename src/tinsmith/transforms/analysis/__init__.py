"""What is known of a kernel without running it: each question in a file of its own."""

from ._activity import Activity, Edge, along, differentiated_leaves, edges_of, find_reachable, find_varied, sources
from ._coverage import PlacedStore, find_covered, find_filled, find_placed_stores
from ._definitions import (
    Definition,
    DefinitionsAndUses,
    Expander,
    definitions,
    expand,
    find_operands,
    single_definitions,
    whole_definitions,
)
from ._indices import affine, concurrent_loop, find_owned, find_owned_by, is_invariant, moving_variables, shared_atomics
from ._liveness import Live, Liveness, find_private_loops
from ._order import find_ordered_atomic
from ._ranges import Range, Ranges
from ._tasks import tasks_of

__all__ = [
    "Activity",
    "Definition",
    "DefinitionsAndUses",
    "Edge",
    "Expander",
    "Live",
    "Liveness",
    "PlacedStore",
    "Range",
    "Ranges",
    "affine",
    "along",
    "concurrent_loop",
    "definitions",
    "differentiated_leaves",
    "edges_of",
    "expand",
    "find_covered",
    "find_filled",
    "find_operands",
    "find_ordered_atomic",
    "find_owned",
    "find_owned_by",
    "find_placed_stores",
    "find_private_loops",
    "find_reachable",
    "find_varied",
    "is_invariant",
    "moving_variables",
    "shared_atomics",
    "single_definitions",
    "sources",
    "tasks_of",
    "whole_definitions",
]
