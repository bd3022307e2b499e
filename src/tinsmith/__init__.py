"""Taichi and Quadrants kernels as PyTorch operations.

The public face: names are handed on from the rooms below, nothing is defined here.
"""

from ._errors import (
    ArgumentError,
    CheckError,
    CheckpointError,
    ConfigError,
    DeviceError,
    DtypeError,
    EngineError,
    GradientError,
    InputError,
    KernelError,
    RegistrationError,
    ShapeError,
    SpecError,
    TinsmithError,
)
from ._version import __version__
from .bridge import Answer, Op, chain, op, oracle
from .doctor import Finding, Gradcheck, Report, check, gradcheck, lint, sanitize
from .engines import init
from .layers import (
    AnyDim,
    BatchDim,
    DimensionCalculator,
    DimID,
    DimOption,
    EmptyTin,
    FieldManager,
    MatchDim,
    Tin,
    Tube,
    input,  # noqa: A004  # read as `ts.input`
    kernel,
    output,
    weight,
)

__all__ = [
    "Answer",
    "AnyDim",
    "ArgumentError",
    "BatchDim",
    "CheckError",
    "CheckpointError",
    "ConfigError",
    "DeviceError",
    "DimID",
    "DimOption",
    "DimensionCalculator",
    "DtypeError",
    "EmptyTin",
    "EngineError",
    "FieldManager",
    "Finding",
    "Gradcheck",
    "GradientError",
    "InputError",
    "KernelError",
    "MatchDim",
    "Op",
    "RegistrationError",
    "Report",
    "ShapeError",
    "SpecError",
    "Tin",
    "TinsmithError",
    "Tube",
    "__version__",
    "chain",
    "check",
    "gradcheck",
    "init",
    "input",
    "kernel",
    "lint",
    "op",
    "oracle",
    "output",
    "sanitize",
    "weight",
]
