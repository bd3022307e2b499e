"""Tube: a module around kernels on tensors of any shape, linked by name."""

from ._dims import AnyDim, BatchDim, DimensionCalculator, DimID, DimOption, MatchDim
from ._tube import Tube

__all__ = ["AnyDim", "BatchDim", "DimID", "DimOption", "DimensionCalculator", "MatchDim", "Tube"]
