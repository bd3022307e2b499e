"""Starts and counts of rays from the ray of each sample: `pack_info`, and runs of equal indices."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._errors import ArgumentError, refusal
from .._packed import pack


def pack_info(ray_indices: Tensor, n_rays: int | None = None) -> Tensor:
    """Compute the start and the count of each ray's samples from the ray of each sample, as nerfacc's `pack_info`.

    Args:
        ray_indices: (all_samples,), integers that never decrease.
        n_rays: the number of rays; None for one more than the largest index.

    Returns:
        (n_rays, 2), of the dtype of the indices. Not differentiable.

    Raises:
        ArgumentError, DtypeError, ShapeError: `ray_indices` is not such a tensor.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.pack_info(torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2]), n_rays=3)
        tensor([[0, 2],
                [2, 3],
                [5, 4]])
    """
    with torch.no_grad():
        if n_rays is None:
            n_rays = int(ray_indices.max()) + 1 if ray_indices.numel() else 0
        return pack(ray_indices, n_rays).to(ray_indices.dtype)


def resolve_rays(
    function: str, packed_info: Tensor | None, indices: Tensor | None, n_rays: int | None = None
) -> Tensor | None:
    """Return the start and the count of each ray's samples, (n_rays, 2), from `packed_info` or from the ray indices.

    None if neither is passed: the samples are batched. Without a number of rays, each run of equal indices is a ray, in
    any order, as in nerfacc on CUDA.

    Raises:
        ArgumentError: both `packed_info` and indices are passed.
    """
    if packed_info is not None and indices is not None:
        rows = [("expected", "`packed_info` or the indices of the samples"), ("got", "both")]
        raise ArgumentError(
            refusal(f"`{function}` takes `packed_info` or indices, not both", rows, "Pass one of them.")
        )
    if indices is None:
        return packed_info
    if n_rays is not None:
        return pack_info(indices, n_rays)
    with torch.no_grad():
        counts = torch.unique_consecutive(indices, return_counts=True)[1]
        return torch.stack([counts.cumsum(0) - counts, counts], 1)
