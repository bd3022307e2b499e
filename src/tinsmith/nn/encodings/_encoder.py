"""Encoder: the base class of all encodings, and those that need no kernel. The others have a file for each family.

An encoder is a function of positions and parameters without state: it holds the values of the configuration, and
takes the parameters as an argument. So it can be copied, pickled and shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


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


class Identity(Encoder):
    """The affine map y = scale * x + offset of each number: as fast in plain torch as in a kernel.

    The addition is skipped if the offset is 0, since each operation reads and writes all numbers.
    """

    def __init__(self, n_input_dims: int, scale: float, offset: float) -> None:
        self.n_input_dims = self.n_output_dims = n_input_dims
        self.scale = scale
        self.offset = offset

    def __call__(self, x: Tensor, params: Tensor, engine: str | None = None) -> Tensor:
        y = x * self.scale  # also if the scale is 1: an output must not share memory with an input
        return y + self.offset if self.offset else y


class Empty(Encoder):
    """The encoding with no output dims: (n, n_input_dims) to (n, 0)."""

    n_output_dims = 0

    def __init__(self, n_input_dims: int) -> None:
        self.n_input_dims = n_input_dims

    def __call__(self, x: Tensor, params: Tensor, engine: str | None = None) -> Tensor:
        return x[:, :0].clone()


class Composite(Encoder):
    """Several encodings of parts of the input, whose outputs are concatenated, added or multiplied.

    Its parameters are those of the parts, concatenated in order, as in tiny-cuda-nn.

    Args:
        n_input_dims: number of input dims of the whole.
        parts: pairs of the first input dim of an encoding and the encoding.
        reduction: "Concatenation", "Sum" or "Product"; for the last two all parts have the same output width.
    """

    def __init__(self, n_input_dims: int, parts: Sequence[tuple[int, Encoder]], reduction: str) -> None:
        self.n_input_dims = n_input_dims
        self.parts = tuple(parts)
        self.reduction = reduction
        widths = [part.n_output_dims for _, part in parts]
        self.n_output_dims = sum(widths) if reduction == "Concatenation" else widths[0]
        self.n_params = sum(part.n_params for _, part in parts)

    def __call__(self, x: Tensor, params: Tensor, engine: str | None = None) -> Tensor:
        sizes = [part.n_params for _, part in self.parts]
        given = params.split(sizes)
        made = [
            part(x[:, begin : begin + part.n_input_dims], own, engine)
            for (begin, part), own in zip(self.parts, given, strict=True)
        ]
        if self.reduction == "Concatenation":
            return torch.cat(made, dim=-1)
        total = made[0]
        for other in made[1:]:
            total = total + other if self.reduction == "Sum" else total * other
        return total

    def initial_params(self, draw: torch.Generator) -> Tensor:
        return torch.cat([part.initial_params(draw) for _, part in self.parts])
