"""An op as its own torch operators: their schemas, fake kernels, batching and autograd rules."""

from ._distributed import call_distributed, is_distributed, run_on_parts, set_parameter
from ._library import Family, LibraryOperator, register_family
from ._operator import define_operator, define_operators
from ._sharding import shares_of

__all__ = [
    "Family",
    "LibraryOperator",
    "call_distributed",
    "define_operator",
    "define_operators",
    "is_distributed",
    "register_family",
    "run_on_parts",
    "set_parameter",
    "shares_of",
]
