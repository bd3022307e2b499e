"""Lowering: from a kernel's Python tree to IR."""

from ._lower import LoweredKernel, lower

__all__ = ["LoweredKernel", "lower"]
