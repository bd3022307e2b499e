"""What is known of a kernel without running it: each question in a file of its own."""

from ._activity import Activity, Edge, along, edges_of, reached, sources, varied_in
from ._definitions import (
    Definition,
    DefinitionsAndUses,
    defined,
    definitions,
    expanded,
    mentioned,
    single_definitions,
    whole_definitions,
)
from ._indices import affine, concurrent_loop, is_invariant, moving_variables, owned, owned_by
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
    "defined",
    "definitions",
    "edges_of",
    "expanded",
    "find_ordered_atomic",
    "is_invariant",
    "mentioned",
    "moving_variables",
    "owned",
    "owned_by",
    "reached",
    "single_definitions",
    "sources",
    "tasks_of",
    "varied_in",
    "whole_definitions",
]
