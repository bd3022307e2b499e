"""Importance sampling and searching along rays, with nerfacc's arguments."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._errors import ArgumentError, refusal
from .. import _resampling
from ._samples import RayIntervals, RaySamples, find_rays


def importance_sampling(
    intervals: RayIntervals,
    cdfs: Tensor,
    n_intervals_per_ray: int | Tensor,
    stratified: bool = False,
    *,
    engine: str | None = None,
) -> tuple[RayIntervals, RaySamples]:
    """Sample new intervals of rays by inverse transform sampling, as nerfacc's function of this name.

    The formulas are those of `tinsmith.render.importance_sampling`. Not differentiable.

    Args:
        intervals: the intervals of the distribution: batched (..., n_edges), or packed.
        cdfs: shaped like `intervals.vals`, the cumulative weight before each edge.
        n_intervals_per_ray: the number of intervals of each ray: a number, or integers (n_rays,).
        stratified: draw one offset for each ray; False takes the middle of each part of the weight.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Returns:
        The new intervals and a sample in each: batched if the number of intervals is a number, else packed.

    Raises:
        ArgumentError, ShapeError, DtypeError: an argument does not fit.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> edges = torch.tensor([0.0, 1.0, 0.0, 1.0, 2.0])
        >>> intervals = nerfacc.RayIntervals(edges, packed_info=torch.tensor([[0, 2], [2, 3]]))
        >>> nerfacc.importance_sampling(intervals, torch.tensor([0.0, 0.5, 0.0, 0.5, 1.0]), 2)[1].vals
        tensor([[0.2500, 0.7500],
                [0.5000, 1.5000]])
    """
    rays = find_rays("importance_sampling", "intervals", intervals)
    made = _resampling.importance_sampling(
        intervals.vals.reshape(-1),
        cdfs.reshape(-1),
        n_intervals_per_ray.reshape(-1) if isinstance(n_intervals_per_ray, Tensor) else n_intervals_per_ray,
        rays,
        jitter=True if stratified else None,
        engine=engine,
    )
    if made.rays is None or made.edge_rays is None:
        batch = intervals.vals.shape[:-1] if intervals.vals.ndim > 1 else (len(rays),)
        return RayIntervals(made.edges.view(*batch, -1)), RaySamples(made.t.view(*batch, -1))
    edge_info, info = made.edge_rays.long(), made.rays.long()
    edge_indices, indices = _expand_indices(edge_info), _expand_indices(info)
    places = torch.arange(len(edge_indices), device=edge_indices.device)
    starts, counts = edge_info[edge_indices].unbind(1)
    is_left, is_right = places < starts + counts - 1, places > starts
    return RayIntervals(made.edges, edge_info, edge_indices, is_left, is_right), RaySamples(made.t, info, indices)


def searchsorted(
    sorted_sequence: RayIntervals | RaySamples, values: RayIntervals | RaySamples, *, engine: str | None = None
) -> tuple[Tensor, Tensor]:
    """Find, for each value, the two neighbors in its ray's sorted sequence, as nerfacc's function of this name.

    sorted[ids_left] <= value < sorted[ids_right]; values outside are clipped to the range of their ray.

    Args:
        sorted_sequence: numbers in ascending order along each ray, batched or packed.
        values: numbers on the same rays, batched or packed.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Returns:
        ids_left and ids_right, int64, shaped like `values.vals`: indices into a ray's row for batched values, and into
        the flattened `sorted_sequence.vals` for packed ones.

    Raises:
        ArgumentError, ShapeError, DtypeError: an argument does not fit.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> edges = torch.tensor([0.0, 1.0, 0.0, 1.0, 2.0])
        >>> edges = nerfacc.RayIntervals(edges, packed_info=torch.tensor([[0, 2], [2, 3]]))
        >>> values = nerfacc.RaySamples(torch.tensor([0.5, 1.5, 2.5]), packed_info=torch.tensor([[0, 1], [1, 2]]))
        >>> nerfacc.searchsorted(edges, values)
        (tensor([0, 3, 3]), tensor([1, 4, 4]))
    """
    rays = find_rays("searchsorted", "sorted_sequence", sorted_sequence)
    value_rays = find_rays("searchsorted", "values", values)
    if len(rays) != len(value_rays):
        rows = [("sorted_sequence", f"{len(rays)} rays"), ("values", f"{len(value_rays)} rays")]
        remedy = "Pass both for the same rays."
        raise ArgumentError(refusal("The arguments of `searchsorted` have different numbers of rays", rows, remedy))
    ids = _resampling.searchsorted(
        sorted_sequence.vals.reshape(-1), values.vals.reshape(-1), rays, value_rays, engine=engine
    )
    left, right = (part.view(values.vals.shape) for part in ids)
    if values.vals.ndim == 1:
        return left, right
    starts = rays[:, 0].long().view(*values.vals.shape[:-1], 1)
    return left - starts, right - starts


def _expand_indices(packed_info: Tensor) -> Tensor:
    """Return the ray of each sample, (all_samples,), from the starts and counts of the rays."""
    rays = torch.arange(len(packed_info), device=packed_info.device)
    return rays.repeat_interleave(packed_info[:, 1])
