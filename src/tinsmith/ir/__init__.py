"""The IR: kernels as data. Its grammar is in `_nodes`."""

from . import _nodes as nodes
from . import _operators as operators
from . import _types as types
from . import _walk as walk
from ._parser import TextError, parse_ir
from ._printer import print_ir
from ._types import Defaults
from ._verify import InvalidKernel, verify

__all__ = [
    "Defaults",
    "InvalidKernel",
    "TextError",
    "nodes",
    "operators",
    "parse_ir",
    "print_ir",
    "types",
    "verify",
    "walk",
]
