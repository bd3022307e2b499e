"""The slow, readable twins of what the library does fast, in plain torch.

They are public: compare your own kernels against them too.
"""

from ._losses import loss
from ._splat import splat

__all__ = ["loss", "splat"]
