"""Dtypes of computations: half precision is computed in float32 and rounded once, at the end, as in ops."""

from __future__ import annotations

import torch

from ..engines import HALVES

COMPUTED = (torch.float32, torch.float64)
"""The dtypes that modules compute in."""

PARAMETERS = (*COMPUTED, *HALVES)
"""The dtypes that parameters of modules may have."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that a module with parameters of this dtype computes in: float32 for half precision."""
    return torch.float32 if dtype in HALVES else dtype


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Convert a half-precision tensor to float32; return others unchanged. Differentiable."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def round_to(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a tensor to `dtype` if that is a half precision; else return it unchanged. Differentiable."""
    return tensor.to(dtype) if dtype in HALVES else tensor
