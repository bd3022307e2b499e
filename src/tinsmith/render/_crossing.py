"""Intersection of rays with an axis-aligned box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import kernels
from .._errors import ArgumentError, ShapeError, refusal
from ..operation import Op, op
from ._ops import get_op, register_maker


class Crossing(NamedTuple):
    """The intervals of rays within a box.

    Attributes:
        t_near: (n), where each ray enters the box; at least `near`.
        t_far: (n), where it leaves the box; at most `far`.
        hit: (n), bool: True if the ray meets the box.

    Example:
        >>> rays = torch.tensor([[-2.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> crossing = ts.render.ray_aabb_intersect(*rays, (0, 0, 0, 1, 1, 1))
        >>> crossing.t_far - crossing.t_near
        tensor([1.])
    """

    t_near: Tensor
    t_far: Tensor
    hit: Tensor


def ray_aabb_intersect(
    origins: Tensor,
    directions: Tensor,
    aabb: Tensor | Sequence[float],
    *,
    near: float = 0.0,
    far: float = math.inf,
    engine: str | None = None,
) -> Crossing:
    """Compute where rays enter and leave a box whose faces are parallel to the axes.

    With l and u the lower and upper corner, over the axes along which the direction d is not zero:

        t_near = max(near, min((l - o) / d, (u - o) / d) over the axes)
        t_far = min(far, max((l - o) / d, (u - o) / d) over the axes)

    A ray hits if t_near <= t_far and it lies between the faces that it is parallel to. The box is closed:
    a ray that touches a corner or runs within a face hits. A ray that starts inside enters at `near`.

    Args:
        origins: (n, 3). Differentiable where the ray hits.
        directions: (n, 3), of any length; t is in units of it. Differentiable where the ray hits.
        aabb: (6), lower corner x, y, z and upper corner x, y, z. A tensor is differentiable.
        near: the smallest t of a ray.
        far: the largest t of a ray.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        t_near (n), t_far (n) and hit (n), bool. For a ray that misses, t_near = t_far = far, with gradient 0.

    Raises:
        ShapeError: a tensor has another shape, or a lower corner is above the upper one.
        ArgumentError: far is before near.

    Example:
        >>> ray = torch.tensor([[-2.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> ts.render.ray_aabb_intersect(*ray, (0, 0, 0, 1, 1, 1))
        Crossing(t_near=tensor([2.]), t_far=tensor([3.]), hit=tensor([True]))
    """
    refuse_range(near, far, "ray_aabb_intersect")
    through: Op = get_op("ray_aabb_intersect", engine, origins)
    t_near, t_far, hit = through(origins, directions, convert_box(aabb, origins), near, far)
    return Crossing(t_near, t_far, hit)


@register_maker("ray_aabb_intersect")
def _make_crossing_op(lang: Any, fp: str) -> Op:
    spec = "origins[n, 3], directions[n, 3], aabb[6] -> t_near[n], t_far[n], hit[n]: u1"
    init = {"t_near": "empty", "t_far": "empty", "hit": "empty"}
    return op(spec, init=init, adjoint="source")(kernels.ray_aabb_intersect(lang, fp=fp))


def convert_box(aabb: Tensor | Sequence[float], like: Tensor, name: str = "aabb") -> Tensor:
    """Convert a box to a tensor (6) with the dtype and device of `like`.

    Raises:
        ShapeError: numbers that are not a box. A tensor's values are not checked, since it may be on a GPU.
    """
    if isinstance(aabb, Tensor):
        return aabb.to(like)
    corners = [float(number) for number in aabb]
    if len(corners) != 6 or not all(low < high for low, high in zip(corners[:3], corners[3:], strict=True)):
        rows = [("expected", "(6): x, y, z of the lower corner, x, y, z of the upper one"), ("got", str(corners))]
        raise ShapeError(refusal(f"`{name}` is not a box", rows, "Write (-1, -1, -1, 1, 1, 1), say."))
    if like.device.type == "cpu":
        return torch.tensor(corners, dtype=like.dtype)
    kind = {"dtype": like.dtype, "device": like.device}
    return torch.stack(
        [torch.full((), corner, **kind) for corner in corners]
    )  # the host waits for a copy, not for this


def refuse_range(near: float, far: float, function: str) -> None:
    """Raise ArgumentError unless near <= far and near is finite. The message names the function."""
    if not near <= far or math.isinf(near):
        rows = [("near", repr(near)), ("far", repr(far))]
        remedy = "Give near <= far, near finite."
        raise ArgumentError(refusal(f"`near` and `far` are not a range in {function}", rows, remedy))
