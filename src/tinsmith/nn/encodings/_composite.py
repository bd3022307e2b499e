"""Composite: several encodings, each applied to some of the input dims."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ._encoder import Encoder


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
