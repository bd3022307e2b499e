"""The IR: kernels as data. Its grammar is in `_nodes`.

The text of kernels is loaded when it is first used: no call needs it.
"""

# ruff: noqa: F401

import lazy_loader

from . import _nodes as nodes
from . import _operators as operators
from . import _types as types
from . import _walk as walk

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
