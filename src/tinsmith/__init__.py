"""Taichi and Quadrants kernels as PyTorch operations.

The public face: names are handed on from the rooms below, nothing is defined here.
"""

from ._version import __version__

__all__ = ["__version__"]
