"""Tube: a module whose kernels are given tensors of any shape, by name."""

from ._dims import AnyDim, BatchDim, DimensionCalculator, DimID, DimOption, MatchDim
from ._tube import Tube

__all__ = ["AnyDim", "BatchDim", "DimID", "DimOption", "DimensionCalculator", "MatchDim", "Tube"]
