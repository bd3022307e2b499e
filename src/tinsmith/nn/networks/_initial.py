"""Initial weights of an array of networks, drawn independently for each by the rules of tiny-cuda-nn."""

from __future__ import annotations

import math

import torch

from ._layout import Layout

_FREQUENCY = 30.0
"""The frequency of the first layer of sines: SIREN (Sitzmann et al. 2020), section 3.2."""


def draw_initial_params(layout: Layout, cells: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Draw the initial parameters, [cell, row, width], on the CPU: weights uniform in -bound to bound, biases 0.

    The bound is Xavier's, sqrt(6 / (fan in + fan out)). If the activation is a sine, it is SIREN's: 30 / (fan in) in
    the first layer and sqrt(6 / fan in) in the others.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.device("cpu"):  # so that a seed means the same everywhere
        params = torch.zeros(cells, layout.shape.rows, layout.shape.width, dtype=dtype)
        for number, (weights, _) in enumerate(layout.layers(params)):
            drawn = torch.rand(weights.shape, generator=generator, dtype=torch.float64) * 2 - 1
            weights.copy_(drawn * _compute_bound(layout, number, *weights.shape[1:]))
    return params


def _compute_bound(layout: Layout, number: int, fan_in: int, fan_out: int) -> float:
    if layout.shape.activation != "Sine":
        return math.sqrt(6 / (fan_in + fan_out))
    return _FREQUENCY / fan_in if number == 0 else math.sqrt(6 / fan_in)
