"""Encoder: the base class of all encodings. Each family of encodings is in a file of its own.

An encoder is a function of positions and parameters without state: it holds the values of the configuration, and
takes the parameters as an argument. So it can be copied, pickled and shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor

FLOATS = {torch.float32: "f32", torch.float64: "f64"}
"""The dtypes that encodings compute in, and their names in kernels."""


class Learnt(Protocol):
    """Something with learned parameters in a flat tensor."""

    def initial_params(self, draw: torch.Generator) -> Tensor: ...


def draw_params(seed: int, *parts: Learnt) -> Tensor:
    """Draw the initial parameters of several parts, concatenated: a flat float32 tensor on the CPU."""
    with torch.device("cpu"):  # so that a seed means the same everywhere
        draw = torch.Generator().manual_seed(seed)
        return torch.cat([part.initial_params(draw) for part in parts])


class Encoder(ABC):
    """An encoding, as a function of positions and parameters.

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
        """Encode positions `x`, (n, n_input_dims), to (n, n_output_dims).

        `params` is flat, (n_params). Both have the same dtype, float32 or float64, as has the result.
        """

    def initial_params(self, draw: torch.Generator) -> Tensor:
        """Draw the initial parameters, (n_params), float32 on the CPU."""
        return torch.empty(0, dtype=torch.float32)
