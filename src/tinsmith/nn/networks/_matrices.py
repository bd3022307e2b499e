"""Arrays of networks by torch's batched matrix products: on GPUs, for second derivatives, and as a reference."""

from __future__ import annotations

import torch

from .._activations import apply
from ._layout import Layout


def compute_outputs(layout: Layout, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Evaluate each network on its batch: [cell, batch, n_in] to [cell, batch, n_out].

    Differentiable any number of times.
    """
    layers = layout.layers(params)
    for number, (weights, biases) in enumerate(layers):
        x = torch.bmm(x, weights) if biases is None else torch.baddbmm(biases, x, weights)
        is_last = number == len(layers) - 1
        x = apply(layout.shape.output_activation if is_last else layout.shape.activation, x)
    return x


def route_points(layout: Layout, params: torch.Tensor, points: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Evaluate scattered points, [point, n_in] to [point, n_out], each with its network, `cells` [point].

    The points of each network become a batch, padded to the largest one.
    """
    filled, place = fill_batches(points, cells, len(params))
    return compute_outputs(layout, params, filled)[cells, place]


def fill_batches(points: torch.Tensor, cells: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Group points by cell into batches padded with zeros, [cell, place, n_in].

    Also return the place of each point in its batch, [point].
    """
    order = torch.argsort(cells, stable=True)
    counts = torch.bincount(cells, minlength=count)
    ranks = torch.arange(len(cells), device=cells.device) - (counts.cumsum(0) - counts)[cells[order]]
    place = torch.empty_like(ranks).index_copy(0, order, ranks)
    largest = int(counts.max()) if len(cells) else 0
    filled = points.new_zeros(count, largest, points.shape[1])
    return filled.index_put((cells, place), points), place
