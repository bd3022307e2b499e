"""What is known of a kernel without running it: each question in a file of its own."""

from ._activity import Activity, Edge, along, edges_of, reached, sources, varied_in
from ._affine import Affine, affine, are_owned
from ._definitions import (
    Definition,
    defined,
    definitions,
    expanded,
    mentioned,
    single_definitions,
    whole_definitions,
)
from ._ownership import concurrent_loop, owned, owned_by
from ._ranges import Range, Ranges
from ._tasks import tasks_of

__all__ = [
    "Activity",
    "Affine",
    "Definition",
    "Edge",
    "Range",
    "Ranges",
    "affine",
    "are_owned",
    "along",
    "concurrent_loop",
    "defined",
    "definitions",
    "edges_of",
    "expanded",
    "mentioned",
    "owned",
    "owned_by",
    "reached",
    "single_definitions",
    "sources",
    "tasks_of",
    "varied_in",
    "whole_definitions",
]
