"""RayIntervals and RaySamples: numbers along rays, packed or batched; starts and counts of packed ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..._errors import ArgumentError, refusal
from .._packed import dense_rays, pack


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
        remedy = "Pass one of them."
        raise ArgumentError(refusal(f"`{function}` takes `packed_info` or indices, not both", rows, remedy))
    if indices is None:
        return packed_info
    if n_rays is not None:
        return pack_info(indices, n_rays)
    with torch.no_grad():
        counts = torch.unique_consecutive(indices, return_counts=True)[1]
        return torch.stack([counts.cumsum(0) - counts, counts], 1)


@dataclass
class RaySamples:
    """Samples along rays.

    Attributes:
        vals: batched (n_rays, n_samples), or packed (all_samples,).
        packed_info: (n_rays, 2), the start and the count of each ray's samples, if they are packed.
        ray_indices: (all_samples,), int64, the ray of each sample, if they are packed.
        is_valid: (all_samples,), bool: False for unused entries; None if all are samples.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.RaySamples(torch.rand(10, 100)).device
        device(type='cpu')
    """

    vals: Tensor
    packed_info: Tensor | None = None
    ray_indices: Tensor | None = None
    is_valid: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The device of `vals`."""
        return self.vals.device


@dataclass
class RayIntervals:
    """Intervals along rays, stored as their edges in order. Between a right edge and a left edge there is no interval.

    Attributes:
        vals: the edges, batched (n_rays, n_edges), or packed (all_edges,).
        packed_info: (n_rays, 2), the start and the count of each ray's edges, if they are packed.
        ray_indices: (all_edges,), int64, the ray of each edge, if they are packed.
        is_left: (all_edges,), bool: True if an interval begins at the edge; if they are packed.
        is_right: (all_edges,), bool: True if an interval ends at the edge; if they are packed.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.RayIntervals(torch.rand(10, 101)).vals.shape
        torch.Size([10, 101])
    """

    vals: Tensor
    packed_info: Tensor | None = None
    ray_indices: Tensor | None = None
    is_left: Tensor | None = None
    is_right: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The device of `vals`."""
        return self.vals.device


def find_rays(function: str, name: str, given: RayIntervals | RaySamples) -> Tensor:
    """Return the start and the count of each ray's numbers in the flattened `vals`, (n_rays, 2).

    Raises:
        ArgumentError: packed numbers have neither `packed_info` nor `ray_indices`.
    """
    vals = given.vals
    if vals.ndim > 1:
        return dense_rays(vals[..., 0].numel(), vals.shape[-1], vals.device)
    if given.packed_info is not None:
        return given.packed_info
    if given.ray_indices is not None:
        return pack_info(given.ray_indices)
    rows = [(f"{name}.vals", str(tuple(vals.shape))), (f"{name}.packed_info", "None"), (f"{name}.ray_indices", "None")]
    remedy = "Pass `packed_info` or `ray_indices` with packed numbers."
    words = f"`{name}` of `{function}` does not say which number belongs to which ray"
    raise ArgumentError(refusal(words, rows, remedy))
