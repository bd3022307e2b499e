"""Layers: torch modules around kernels, among them Stannum's Tin, EmptyTin and Tube."""

from .fields import FieldManager
from .rollout import Rollout, rollout
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
    "Rollout",
    "Tin",
    "Tube",
    "input",
    "kernel",
    "output",
    "rollout",
    "weight",
]
