"""Taichi and Quadrants kernels as PyTorch operations.

The public face: names are handed on from the rooms below, nothing is defined here.
"""

from ._errors import (
    ArgumentError,
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
from .bridge import Op, chain, op
from .engines import init

__all__ = [
    "ArgumentError",
    "CheckpointError",
    "ConfigError",
    "DeviceError",
    "DtypeError",
    "EngineError",
    "GradientError",
    "InputError",
    "KernelError",
    "Op",
    "RegistrationError",
    "ShapeError",
    "SpecError",
    "TinsmithError",
    "__version__",
    "chain",
    "init",
    "op",
]
