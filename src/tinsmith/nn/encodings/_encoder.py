"""Encoder: the contract of all encodings, one file a family.

An encoder is a function of positions and parameters, without state: it holds what the configuration fixes, and
takes the parameters as an argument. So it can be copied, pickled and shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor

FLOATS = {torch.float32: "f32", torch.float64: "f64"}
"""What encodings are computed in, and what kernels call it."""


class Learnt(Protocol):
    """What has parameters in a flat tensor."""

    def initial_params(self, draw: torch.Generator) -> Tensor: ...


def draw_params(seed: int, *parts: Learnt) -> Tensor:
    """Draw the initial parameters of parts, one after the other."""
    with torch.device("cpu"):  # so that a seed means the same everywhere
        draw = torch.Generator().manual_seed(seed)
        return torch.cat([part.initial_params(draw) for part in parts])


class Encoder(ABC):
    """An encoding as a function.

    Attributes:
        n_input_dims: number of input dims, the coordinates of a position.
        n_output_dims: number of output dims.
        n_params: length of the flat tensor of its parameters, 0 for most.
    """

    n_input_dims: int
    n_output_dims: int
    n_params: int = 0

    @abstractmethod
    def __call__(self, x: Tensor, params: Tensor, engine: str | None = None) -> Tensor:
        """Encode (n, n_input_dims) to (n, n_output_dims), of one dtype with `params` (n_params): float32 or float64."""

    def initial_params(self, draw: torch.Generator) -> Tensor:
        """(n_params), float32 on the CPU: the initial parameters."""
        return torch.empty(0, dtype=torch.float32)
