"""An op as its own torch operators: their schemas, fake kernels, batching and autograd rules."""

from ._distributed import call_distributed, is_distributed
from ._operator import define_operator, define_operators
from ._sharding import shares_of

__all__ = ["call_distributed", "define_operator", "define_operators", "is_distributed", "shares_of"]
