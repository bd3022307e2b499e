"""References of resampling a ray by the weights of its intervals, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def searchsorted(edges: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Find, for each value, the two edges of a ray that enclose it: edges[left] <= value < edges[right].

    Args:
        edges: (k), ascending.
        values: (m), in any order.

    Returns:
        left (m) and right (m), int64. For a value before all edges both are 0; after all edges, they are k - 2 and
        k - 1.

    Example:
        >>> searchsorted(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.5, 1.0, 7.0]))
        (tensor([0, 1, 1]), tensor([1, 2, 2]))
    """
    right = torch.searchsorted(edges[:-1].contiguous(), values.contiguous(), right=True)
    return (right - 1).clamp(min=0), right


def importance_sampling(edges: Tensor, cdfs: Tensor, n_intervals: int, offset: float = 0.5) -> tuple[Tensor, Tensor]:
    """Sample new intervals of a ray by inverse transform sampling: see `tinsmith.render.importance_sampling`.

    Args:
        edges: (k), ascending.
        cdfs: (k), the cumulative weight before each edge, never decreasing.
        n_intervals: the number m of new intervals.
        offset: the position of each sample within its equal part of the weight, in [0, 1).

    Returns:
        New edges (m + 1), and samples (m).

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
    """Compute a loss on the weights of a ray's intervals that exceed the bound of a proposal.

    Barron et al. 2022 (mip-NeRF 360), equations 12 and 13:

        bound_i = sum of the proposal's weights over its intervals that overlap interval i
        loss = sum over i of max(0, weight_i - bound_i)^2 / (weight_i + 1e-7)

    Args:
        edges: (k), ascending.
        cdfs: (k), the cumulative weight before each edge. Differentiable.
        proposal_edges: (j), ascending.
        proposal_cdfs: (j), the proposal's cumulative weight before each of its edges. Differentiable.

    Returns:
        The loss, a 0-d tensor.

    Example:
        >>> edges, cdfs = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 1.0])
        >>> proposal_loss(edges, cdfs, torch.tensor([0.0, 0.5, 2.0]), torch.tensor([0.0, 0.25, 0.5]))
        tensor(0.2500)
    """
    weights, theirs = cdfs.diff(), proposal_cdfs.diff()
    starts, ends = edges[:-1, None], edges[1:, None]
    # As in nerfacc, an interval that begins where i ends overlaps it too; one that ends where i begins does not.
    overlaps = (proposal_edges[1:] > starts) & (proposal_edges[:-1] <= ends)
    bounds = (overlaps * theirs).sum(1)
    return ((weights - bounds).clamp(min=0) ** 2 / (weights + 1e-7)).sum()
