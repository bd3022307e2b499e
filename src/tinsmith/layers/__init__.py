"""Layers: kernels as torch modules, Stannum's Tin, EmptyTin and Tube among them."""

from ._dims import AnyDim, BatchDim, DimensionCalculator, DimID, DimOption, MatchDim
from ._tube import Tube

__all__ = [
    "AnyDim",
    "BatchDim",
    "DimID",
    "DimOption",
    "DimensionCalculator",
    "MatchDim",
    "Tube",
]
