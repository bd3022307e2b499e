"""What is known of a kernel without running it: each question in a file of its own."""

from ._activity import Activity, Edge, along, edges_of, find_reachable, sources, varied_in
from ._definitions import (
    Definition,
    DefinitionsAndUses,
    definitions,
    expand,
    expand_fully,
    find_defined,
    find_mentioned,
    find_operands,
    single_definitions,
    whole_definitions,
)
from ._indices import affine, concurrent_loop, find_owned, is_invariant, moving_variables, owned_by
from ._liveness import Live, Liveness
from ._order import find_ordered_atomic
from ._ranges import Range, Ranges
from ._tasks import tasks_of

__all__ = [
    "Activity",
    "Definition",
    "DefinitionsAndUses",
    "Edge",
    "Live",
    "Liveness",
    "Range",
    "Ranges",
    "affine",
    "along",
    "concurrent_loop",
    "definitions",
    "edges_of",
    "expand",
    "expand_fully",
    "find_defined",
    "find_mentioned",
    "find_operands",
    "find_ordered_atomic",
    "find_owned",
    "find_reachable",
    "is_invariant",
    "moving_variables",
    "owned_by",
    "single_definitions",
    "sources",
    "tasks_of",
    "varied_in",
    "whole_definitions",
]
