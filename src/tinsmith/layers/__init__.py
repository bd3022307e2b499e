"""Layers: kernels as torch modules, Stannum's Tin, EmptyTin and Tube among them."""

from ._dims import AnyDim, BatchDim, DimensionCalculator, DimID, DimOption, MatchDim
from ._managers import FieldManager
from ._marks import input, kernel, output, weight  # noqa: A004  # read as `ts.input`
from ._tin import EmptyTin, Tin
from ._tube import Tube

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
