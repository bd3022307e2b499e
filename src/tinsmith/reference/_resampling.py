"""Resampling rays by the weights of their intervals, in plain torch, a ray at a time."""

from __future__ import annotations

import torch
from torch import Tensor


def searchsorted(edges: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The edges of a ray around each value: the last that is not above it, and the first that is above it.

    Args:
        edges: (k), ascending.
        values: (m).

    Returns:
        Two of (m), int64. Of a value before all edges both are 0; behind them they are k - 2 and k - 1.

    Example:
        >>> searchsorted(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.5, 1.0, 7.0]))
        (tensor([0, 1, 1]), tensor([1, 2, 2]))
    """
    right = torch.searchsorted(edges[:-1].contiguous(), values.contiguous(), right=True)
    return (right - 1).clamp(min=0), right


def importance_sampling(edges: Tensor, cdfs: Tensor, n_intervals: int, offset: float = 0.5) -> tuple[Tensor, Tensor]:
    """New intervals of a ray, each with the same share of its weight, about samples by the inverse of `cdfs`.

    Args:
        edges: (k), ascending.
        cdfs: (k), the ray's weight before each edge, which does not fall.
        n_intervals: m, how many there will be.
        offset: where in its share of the weight each sample is, in [0, 1).

    Returns:
        Edges (m + 1), and samples (m).

    Example:
        >>> importance_sampling(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 1.0]), 2)
        (tensor([1.0000, 1.5000, 2.0000]), tensor([1.2500, 1.7500]))
    """
    numbers = (torch.arange(n_intervals, dtype=edges.dtype) + offset) / n_intervals
    t = edges[0] + numbers * (edges[-1] - edges[0])
    if cdfs[-1] > cdfs[0]:
        u = cdfs[0] + numbers * (cdfs[-1] - cdfs[0])
        low, high = searchsorted(cdfs, u)
        t = torch.lerp(edges[low], edges[high], ((u - cdfs[low]) / (cdfs[high] - cdfs[low])).clamp(max=1))
    if n_intervals == 1:
        return edges[[0, -1]], t
    middles = (t[1:] + t[:-1]) / 2
    first, last = 2 * t[:1] - middles[:1], 2 * t[-1:] - middles[-1:]
    return torch.cat([first.clamp(min=float(edges[0])), middles, last.clamp(max=float(edges[-1]))]), t


def proposal_loss(edges: Tensor, cdfs: Tensor, proposal_edges: Tensor, proposal_cdfs: Tensor) -> Tensor:
    """How far the weights of a ray's intervals exceed what a proposal has there: mip-NeRF 360, equations 12 and 13.

        bound_i = sum of the proposal's weights over its intervals that overlap interval i
        loss = sum over i of max(0, weight_i - bound_i)^2 / (weight_i + 1e-7)

    Args:
        edges: (k), ascending.
        cdfs: (k), the weight before each edge. Differentiable.
        proposal_edges: (j), ascending.
        proposal_cdfs: (j). Differentiable.

    Returns:
        ().

    Example:
        >>> edges, cdfs = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 1.0])
        >>> proposal_loss(edges, cdfs, torch.tensor([0.0, 0.5, 2.0]), torch.tensor([0.0, 0.25, 0.5]))
        tensor(0.2500)
    """
    weights, theirs = cdfs.diff(), proposal_cdfs.diff()
    starts, ends = edges[:-1, None], edges[1:, None]
    # An interval that begins where i ends overlaps too, as it does in nerfacc; one that ends where i begins does not.
    overlaps = (proposal_edges[1:] > starts) & (proposal_edges[:-1] <= ends)
    bounds = (overlaps * theirs).sum(1)
    return ((weights - bounds).clamp(min=0) ** 2 / (weights + 1e-7)).sum()
