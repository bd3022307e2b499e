"""The IR: kernels as data."""

from . import _nodes as nodes
from . import _types as types

__all__ = ["nodes", "types"]
