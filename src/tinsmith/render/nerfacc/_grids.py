"""Intersection of rays with boxes and grids of cells, with nerfacc's arguments."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import kernels
from ..._errors import ArgumentError, ShapeError, refusal
from ...operation import Op
from .._ops import get_op, register_maker
from .._rule import steady
from ._samples import RayIntervals, RaySamples

_UNLIMITED = 2**31 - 1


@torch.no_grad()
def ray_aabb_intersect(
    rays_o: Tensor,
    rays_d: Tensor,
    aabbs: Tensor,
    near_plane: float = -math.inf,
    far_plane: float = math.inf,
    miss_value: float = math.inf,
) -> tuple[Tensor, Tensor, Tensor]:
    """Find where rays enter and leave boxes, as nerfacc's function of this name. Not differentiable.

    A box is hit if it is not behind the ray's origin, regardless of the near and far planes.

    Args:
        rays_o: (n_rays, 3), origins.
        rays_d: (n_rays, 3), directions.
        aabbs: (m, 6), lower corner x, y, z and upper corner x, y, z of each box.
        near_plane: the smallest value of a result.
        far_plane: the largest value of a result.
        miss_value: the result for a box that is not hit.

    Returns:
        t_mins (n_rays, m), t_maxs (n_rays, m), and hits (n_rays, m), bool.

    Raises:
        ShapeError: a tensor has another shape.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> rays_o, rays_d = torch.tensor([[-2.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> nerfacc.ray_aabb_intersect(rays_o, rays_d, torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]]))
        (tensor([[2.]]), tensor([[3.]]), tensor([[True]]))
    """
    _check_shapes("ray_aabb_intersect", rays_o, rays_d, aabbs)
    origins, directions = rays_o[:, None], rays_d[:, None]
    sides = torch.stack([aabbs[:, :3] - origins, aabbs[:, 3:] - origins])
    # A ray that is parallel to two faces is between them everywhere or nowhere.
    is_still, is_between = directions == 0, (sides[0] <= 0) & (sides[1] >= 0)
    enters, leaves = torch.aminmax(sides / torch.where(is_still, 1.0, directions), dim=0)
    enters = torch.where(is_still, torch.where(is_between, -math.inf, math.inf), enters).amax(-1)
    leaves = torch.where(is_still, torch.where(is_between, math.inf, -math.inf), leaves).amin(-1)
    hits = (enters <= leaves) & (leaves > 0) & ~is_still.all(-1)
    t_mins = torch.where(hits, enters.clamp(min=near_plane), miss_value)
    t_maxs = torch.where(hits, leaves.clamp(max=far_plane), miss_value)
    return t_mins, t_maxs, hits


@torch.no_grad()
def traverse_grids(
    rays_o: Tensor,
    rays_d: Tensor,
    binaries: Tensor,
    aabbs: Tensor,
    near_planes: Tensor | None = None,
    far_planes: Tensor | None = None,
    step_size: float | None = 1e-3,
    cone_angle: float | None = 0.0,
    traverse_steps_limit: int | None = None,
    over_allocate: bool | None = False,
    rays_mask: Tensor | None = None,
    t_sorted: Tensor | None = None,
    t_indices: Tensor | None = None,
    hits: Tensor | None = None,
    *,
    engine: str | None = None,
) -> tuple[RayIntervals, RaySamples, Tensor]:
    """Find the intervals of rays in the occupied cells of grids, as nerfacc's function of this name.

    A ray's intervals follow each other from its near plane on. An interval that begins at t is
    max(step_size, cone_angle t) long; with a step size of 0 or less, it extends to the end of its cell. It is returned
    if its midpoint is in an occupied cell. If grids overlap, the one that the ray entered last applies. Not
    differentiable.

    Args:
        rays_o: (n_rays, 3), origins.
        rays_d: (n_rays, 3), directions. A ray whose direction is zero has no intervals.
        binaries: (m, resx, resy, resz), bool: the occupied cells of m grids.
        aabbs: (m, 6), lower corner x, y, z and upper corner x, y, z of each grid.
        near_planes: (n_rays,); None for 0.
        far_planes: (n_rays,); None for infinity.
        step_size: the smallest length of an interval.
        cone_angle: growth of the length with t; 0 for even lengths.
        traverse_steps_limit: maximum number of intervals per ray, or None. The third result can be passed as
            `near_planes` of the next call, which continues.
        over_allocate: in nerfacc, saves one of two passes. Here the result is the same, without unused entries.
        rays_mask: (n_rays,), bool: False for rays that are skipped.
        t_sorted: (n_rays, 2 m), where a ray enters and leaves the grids, sorted; None to compute it.
        t_indices: (n_rays, 2 m), the indices of the sorting; None to compute them.
        hits: (n_rays, m), bool: True if the ray meets the grid; None to compute it.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Returns:
        The edges of the intervals as packed `RayIntervals`, their midpoints as packed `RaySamples`, and the start of
        the next interval of each ray, (n_rays,).

    Raises:
        ShapeError: tensors do not fit each other.
        ArgumentError: `over_allocate` is set without a limit.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> rays_o, rays_d = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> cells = torch.tensor([True, False]).view(1, 2, 1, 1)
        >>> box = torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]])
        >>> intervals, samples, _ = nerfacc.traverse_grids(rays_o, rays_d, cells, box, step_size=0.25)
        >>> intervals.vals, samples.vals
        (tensor([1.0000, 1.2500, 1.5000]), tensor([1.1250, 1.3750]))
    """
    if over_allocate and not (traverse_steps_limit or 0) > 0:
        rows = [("traverse_steps_limit", repr(traverse_steps_limit), "should be 1 or more")]
        remedy = "Pass traverse_steps_limit."
        raise ArgumentError(refusal("`over_allocate` of `traverse_grids` needs a limit", rows, remedy))
    steps = find_steps(
        rays_o,
        rays_d,
        binaries,
        aabbs,
        near_planes=rays_o.new_zeros(len(rays_o)) if near_planes is None else near_planes,
        far_planes=rays_o.new_full((len(rays_o),), math.inf) if far_planes is None else far_planes,
        step_size=step_size or 0.0,
        cone_angle=cone_angle or 0.0,
        limit=traverse_steps_limit,
        mask=rays_mask,
        crossings=None if t_sorted is None or t_indices is None or hits is None else (t_sorted, t_indices, hits),
        engine=engine,
    )
    is_valid = torch.ones_like(steps.ray_indices, dtype=torch.bool)
    middles = (steps.starts + steps.ends) / 2
    samples = RaySamples(middles, steps.packed_info, steps.ray_indices, is_valid)
    return _make_edges(steps), samples, steps.stops


class Steps(NamedTuple):
    """Packed intervals of rays: see `kernels.Traversal`. `packed_info` and `ray_indices` are int64."""

    starts: Tensor
    ends: Tensor
    ray_indices: Tensor
    packed_info: Tensor
    joined: Tensor
    stops: Tensor


def find_steps(
    rays_o: Tensor,
    rays_d: Tensor,
    binaries: Tensor,
    aabbs: Tensor,
    *,
    near_planes: Tensor,
    far_planes: Tensor,
    step_size: float,
    cone_angle: float,
    limit: int | None = None,
    mask: Tensor | None = None,
    crossings: tuple[Tensor, Tensor, Tensor] | None = None,
    engine: str | None = None,
) -> Steps:
    """Find the intervals of rays in the occupied cells of grids, packed. Arguments as for `traverse_grids`.

    `limit` is its `traverse_steps_limit`, `mask` its `rays_mask`, `crossings` its (t_sorted, t_indices, hits).
    """
    _check_shapes("traverse_grids", rays_o, rays_d, aabbs)
    if binaries.ndim != 4 or len(binaries) != len(aabbs):
        rows = [("binaries", f"[m, x, y, z] = {tuple(binaries.shape)}"), ("aabbs", f"[m, 6] = {tuple(aabbs.shape)}")]
        remedy = "Pass `binaries` with four axes, and one box per grid."
        raise ShapeError(refusal("The grids of `traverse_grids` do not fit each other", rows, remedy))
    if crossings is None:
        t_mins, t_maxs, hits = ray_aabb_intersect(rays_o, rays_d, aabbs.to(rays_o))
        t_sorted, t_indices = torch.sort(torch.cat([t_mins, t_maxs], -1), -1)
    else:
        t_sorted, t_indices, hits = crossings
    count, fill = get_op("traversal", engine, rays_o)
    rays, cells = (rays_o.detach(), rays_d.detach()), binaries.to(torch.uint8)
    grids = (cells, aabbs.to(rays_o), hits.to(torch.uint8), t_sorted.to(rays_o), t_indices.to(torch.int32))
    planes = (near_planes.detach().to(rays_o), far_planes.detach().to(rays_o))
    marks = hits.new_ones(len(rays_o), dtype=torch.uint8) if mask is None else mask.to(torch.uint8)
    most = limit if limit is not None and limit > 0 else _UNLIMITED
    counts, stops = count(*rays, marks, *grids, *planes, step_size, cone_angle, most)
    ends = counts.cumsum(0, dtype=torch.int64)
    packed_info = torch.stack([ends - counts, counts.long()], 1)
    size = int(ends[-1]) if len(ends) else 0
    filled = fill(*rays, *grids, *planes, packed_info.int(), step_size, cone_angle, s=size)
    starts, stops_of_steps, ray_index, joined = filled
    return Steps(starts, stops_of_steps, ray_index.long(), packed_info, joined, stops)


def _make_edges(steps: Steps) -> RayIntervals:
    """Convert packed intervals to their edges: two per interval, or one if it begins at the end of the previous one."""
    added = 2 - steps.joined.long()
    right = added.cumsum(0) - 1
    vals = steps.starts.new_empty(int(right[-1]) + 1 if len(right) else 0)
    is_left, is_right = (torch.zeros_like(vals, dtype=torch.bool) for _ in range(2))
    indices = torch.empty_like(vals, dtype=torch.int64)
    for places, edges, sides in ((right - 1, steps.starts, is_left), (right, steps.ends, is_right)):
        vals[places], indices[places], sides[places] = edges, steps.ray_indices, True
    counts = torch.zeros_like(steps.packed_info[:, 0]).index_add(0, steps.ray_indices, added)
    return RayIntervals(vals, torch.stack([counts.cumsum(0) - counts, counts], 1), indices, is_left, is_right)


def _check_shapes(function: str, rays_o: Tensor, rays_d: Tensor, aabbs: Tensor) -> None:
    n = rays_o.shape[0] if rays_o.ndim else 0
    expected = {"rays_o": (rays_o, (n, 3)), "rays_d": (rays_d, (n, 3)), "aabbs": (aabbs, (*aabbs.shape[:1], 6))}
    if any(tuple(tensor.shape) != shape for tensor, shape in expected.values()):
        rows = [(name, f"{tuple(tensor.shape)}", f"should be {shape}") for name, (tensor, shape) in expected.items()]
        remedy = "Flatten rays with `.reshape(-1, 3)`; one box is `aabb[None]`."
        raise ShapeError(refusal(f"The arguments of `{function}` have the wrong shapes", rows, remedy))


@register_maker("traversal")
def _make_ops(lang: Any, fp: str) -> tuple[Op, Op]:
    traversal = kernels.traversal(lang, fp=fp)
    grids = "cells[g, x, y, z]: u8, boxes[g, 6], hits[n, g]: u8, crossings[n, k], order[n, k]: i32"
    rays = "origins[n, 3], directions[n, 3]"
    ends = "near[n], far[n]"
    init = {"counts": "empty", "stops": "empty"}
    count = steady(f"{rays}, mask[n]: u8, {grids}, {ends} -> counts[n]: i32, stops[n]", traversal.count, init=init)
    outputs = "starts[s], ends[s], ray_index[s]: i32, joined[s]: i32"
    fill = steady(f"{rays}, {grids}, {ends}, segments rays[n, 2]: i32 -> {outputs}", traversal.fill)
    return count, fill
