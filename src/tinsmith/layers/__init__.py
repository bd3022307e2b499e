"""Layers: kernels as torch modules, Stannum's Tin, EmptyTin and Tube among them."""

from ._dims import AnyDim, BatchDim, DimensionCalculator, DimID, DimOption, MatchDim
from ._tube import Tube
from .fields import FieldManager
from .tin import EmptyTin, Tin, input, kernel, output, weight  # noqa: A004  # read as `ts.input`

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
