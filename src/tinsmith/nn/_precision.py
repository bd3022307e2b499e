"""Precision: half precision is computed in float32 and rounded once, at the end, as ops do."""

from __future__ import annotations

import torch

from ..engines import HALVES

COMPUTED = (torch.float32, torch.float64)
"""The dtypes that modules are computed in."""

PARAMETERS = (*COMPUTED, *HALVES)
"""The dtypes that their parameters may have."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that parameters of this dtype are computed in: float32 for half precision."""
    return torch.float32 if dtype in HALVES else dtype


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of half precision in float32, others as they are. Differentiable."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def round_to(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round a result to this dtype if it is half precision. Differentiable."""
    return tensor.to(dtype) if dtype in HALVES else tensor
