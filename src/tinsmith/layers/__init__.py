"""Layers: kernels as torch modules, Stannum's Tin, EmptyTin and Tube among them."""

from .fields import FieldManager
from .tin import EmptyTin, Tin, input, kernel, output, weight  # noqa: A004  # read as `ts.input`
from .tube import AnyDim, BatchDim, DimensionCalculator, DimID, DimOption, MatchDim, Tube

__all__ = [
    "AnyDim",
    "BatchDim",
    "DimID",
    "DimOption",
    "DimensionCalculator",
    "EmptyTin",
    "FieldManager",
    "MatchDim",
    "Tin",
    "Tube",
    "input",
    "kernel",
    "output",
    "weight",
]
