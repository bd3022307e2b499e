"""The IR: kernels as data."""

from ...ir import nodes, types, walk
from . import _decompositions as decompositions
from . import _operators as python_operators
from ._blocks import BLOCK_SIZE, iteration_number
from ._cells import with_cells
from ._comments import add_comments
from ._interpret import build_exact_kernel
from ._lower import LoweredKernel, lower
from ._print import print_kernel
from ._print_vectors import VECTOR_FUNCTIONS, find_sums
from ._refusals import DIVISION_BY_ZERO, RUN_IN_ORDER, Misfit, NotCovered, Race

__all__ = [
    "BLOCK_SIZE",
    "DIVISION_BY_ZERO",
    "LoweredKernel",
    "Misfit",
    "NotCovered",
    "RUN_IN_ORDER",
    "Race",
    "VECTOR_FUNCTIONS",
    "add_comments",
    "build_exact_kernel",
    "decompositions",
    "find_sums",
    "iteration_number",
    "lower",
    "nodes",
    "print_kernel",
    "python_operators",
    "types",
    "walk",
    "with_cells",
]
