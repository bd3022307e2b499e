"""From IR to source that an engine compiles."""

from . import _python_operators as python_operators
from ._build import build, build_from_text, keep_file, map_lines, write_file
from ._comments import add_comments
from ._exact import build_exact_kernel
from ._kernel import PrintedKernel, print_kernel
from ._python_operators import ATOMIC_AUGMENTED, BINARY, COMPARE, UNARY
from ._vectors import VECTOR_FUNCTIONS, find_sums

__all__ = [
    "ATOMIC_AUGMENTED",
    "BINARY",
    "COMPARE",
    "PrintedKernel",
    "UNARY",
    "VECTOR_FUNCTIONS",
    "add_comments",
    "build",
    "build_exact_kernel",
    "build_from_text",
    "find_sums",
    "keep_file",
    "map_lines",
    "print_kernel",
    "python_operators",
    "write_file",
]
