"""Scattered points, each evaluated by the network of its cell: by tinsmith, and sorted into padded batches by torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from _network_ways import ENGINES, N_IN, N_OUT, Networks, perceptrons, pieces

TORCH = "torch: sort, pad, baddbmm"
SIDE = 64


def scattered(points: int, how: str) -> Tensor:
    """Draw points in a grid of 64 x 64 cells, evenly or around the middle; return the cell of each."""
    place = torch.rand(points, 2) if how == "evenly" else (0.5 + 0.2 * torch.randn(points, 2)).clamp(0, 1 - 1e-6)
    x, y = (place * SIDE).long().unbind(1)
    return x * SIDE + y


def ways(networks: Networks, points: int, how: str) -> dict[str, Callable[[], Tensor]]:
    """Return each way's forward pass, and backward pass to the parameters, as calls that return the outputs."""
    x, cells = torch.rand(points, N_IN), scattered(points, how)
    weight = torch.randn(points, N_OUT)
    arrays = {f"tinsmith on {engine}": networks.array(engine) for engine in ENGINES}
    weights, biases = pieces(networks)
    all_ways = {name: _pass(lambda a=a: a.route_points(x, cells), [a.params], weight) for name, a in arrays.items()}
    all_ways[TORCH] = _pass(lambda: padded(weights, biases, x, cells), [*weights, *biases], weight)
    return all_ways


def _pass(outputs: Callable[[], Tensor], params: list[Tensor], weight: Tensor) -> Callable[[], Tensor]:
    def run() -> Tensor:
        y = outputs()
        torch.autograd.grad(y, params, weight)
        return y

    return run


def padded(weights: list[Tensor], biases: list[Tensor], x: Tensor, cells: Tensor) -> Tensor:
    """Evaluate the networks on padded batches in torch, as fast as we could write it: rows are copied once each way, by
    index.
    """
    owner, order = torch.sort(cells)
    counts = torch.bincount(cells, minlength=len(weights[0]))
    longest = int(counts.max())
    slot = owner * longest + torch.arange(len(x)) - (counts.cumsum(0) - counts)[owner]
    batches = x.new_zeros(len(counts) * longest, N_IN).index_copy_(0, slot, x.index_select(0, order))
    y = perceptrons(weights, biases, batches.view(len(counts), longest, N_IN))
    place = torch.empty_like(order).index_copy_(0, order, slot)  # for each point, in the original order
    return y.flatten(0, 1).index_select(0, place)
