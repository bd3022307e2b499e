"""Strips and lanes: loops in the forms that the compilers of engines for CPUs make machine vectors of."""

from ._edges import split_edges
from ._elementwise import is_elementwise
from ._engine_vectors import has_engine_vector, with_vectors
from ._parts import FUNCTIONS, LIMITS, POWER, assign, at_line, by_arithmetic, is_vector, moves, run_lanes
from ._row_major import has_rows_in_loops, index_by_rows
from ._strips import has_vector_loops, strip_functions

__all__ = [
    "FUNCTIONS",
    "LIMITS",
    "POWER",
    "assign",
    "at_line",
    "by_arithmetic",
    "has_engine_vector",
    "has_rows_in_loops",
    "has_vector_loops",
    "index_by_rows",
    "is_elementwise",
    "is_vector",
    "moves",
    "run_lanes",
    "split_edges",
    "strip_functions",
    "with_vectors",
]
