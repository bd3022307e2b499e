"""The same networks by torch's batched matrix products: on GPUs, for second derivatives, and to compare with."""

from __future__ import annotations

import torch

from .._activations import apply
from ._layout import Layout


def outputs(layout: Layout, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """[cell, batch, n_out] of [cell, batch, n_in]. Differentiable, also twice."""
    layers = layout.layers(params)
    for number, (weights, biases) in enumerate(layers):
        x = torch.bmm(x, weights) if biases is None else torch.baddbmm(biases, x, weights)
        is_last = number == len(layers) - 1
        x = apply(layout.shape.output_activation if is_last else layout.shape.activation, x)
    return x


def routed(layout: Layout, params: torch.Tensor, points: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """[point, n_out] of [point, n_in] and the network of each: sorted, filled up to the largest batch, and back."""
    counts = torch.bincount(cells, minlength=len(params))
    order = torch.argsort(cells, stable=True)
    owner = cells[order]
    place = torch.arange(len(cells), device=cells.device) - (counts.cumsum(0) - counts)[owner]
    width = int(counts.max()) if len(cells) else 0
    batches = points.new_zeros(len(params), width, points.shape[1])
    batches = batches.index_put((owner, place), points[order])
    found = outputs(layout, params, batches)[owner, place]
    return torch.empty_like(found).index_copy(0, order, found)
