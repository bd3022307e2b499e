"""Marching: sampling of rays in the occupied cells of an `OccupancyGrid` or in a box, and positions of the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import kernels
from .._errors import ArgumentError, ShapeError, refusal
from .._integers import read_positive
from ..operation import Op
from ._course import Jitter, find_samples, plan_course, refuse_numbers
from ._occupancy import OccupancyGrid
from ._ops import get_op, register_maker
from ._packed import pack
from ._rule import steady
from ._segments import exclusive_prod


@dataclass(frozen=True)
class Samples:
    """Samples along rays, packed: those of a ray next to each other, in order.

    Attributes:
        rays: (n, 2), int32, the start and the count of each ray's samples.
        ray_index: (s), int32, the ray of each sample.
        t: (s), positions along the ray, in units of its direction.
        steps: (s), length of each sample's interval, in units of the ray's direction.
        total: (), int64, number of samples after invisible ones are dropped, before they are cut to the capacity.
        engine: the engine that computes positions; None for a running engine, else an installed one.

    Example:
        >>> ray = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> samples = ts.render.march(*ray, (0, 0, 0, 1, 1, 1), step=0.5)
        >>> samples.positions(*ray)
        tensor([[0.2500, 0.5000, 0.5000],
                [0.7500, 0.5000, 0.5000]])
    """

    rays: Tensor
    ray_index: Tensor
    t: Tensor
    steps: Tensor
    total: Tensor
    engine: str | None = None

    def positions(self, origins: Tensor, directions: Tensor) -> Tensor:
        """Compute the positions of the samples: origin + t direction.

        Args:
            origins: (n, 3), the rays' origins. Differentiable.
            directions: (n, 3), the rays' directions. Differentiable, as is `t`.

        Returns:
            (s, 3). Zeros for samples that belong to no ray.
        """
        places: Op = get_op("positions", self.engine, origins)
        return places(origins, directions, self.t, self.rays)

    def directions(self, directions: Tensor) -> Tensor:
        """Return the direction of each sample's ray, not normalized.

        Args:
            directions: (n, 3), the rays' directions. Differentiable.

        Returns:
            (s, 3). Zeros for samples that belong to no ray.
        """
        spread: Op = get_op("directions", self.engine, directions)
        return spread(directions, self.rays, s=self.t.shape[0])


def march(
    origins: Tensor,
    directions: Tensor,
    grid: OccupancyGrid | Tensor | Sequence[float],
    *,
    step: float,
    near: float | Tensor = 0.0,
    far: float | Tensor = math.inf,
    scene_box: Tensor | Sequence[float] | None = None,
    jitter: Jitter = None,
    max_steps: int = 1024,
    cone_angle: float = 0.0,
    max_step: float = math.inf,
    capacity: int | None = None,
    sigma_fn: Callable[[Samples], Tensor] | None = None,
    alpha_fn: Callable[[Samples], Tensor] | None = None,
    early_stop_eps: float = 1e-4,
    alpha_thre: float = 0.0,
    engine: str | None = None,
) -> Samples:
    """Sample rays in the occupied cells of a grid.

    Intervals start at e[0], where a ray enters both the grid's outermost box and the scene's box (or at `near`, if that
    is later). With the ray's offset u:

        d[k] = min(max(step, cone_angle e[k]), max_step),   e[k + 1] = e[k] + d[k],   t[k] = e[k] + u d[k]

    Only samples before the ray's end and in occupied cells are returned. Empty cells are skipped quickly, and skipping
    does not move the other samples. With u drawn uniformly from [0, 1), a sum of f(t) d over the samples is an unbiased
    estimate of the integral. Without jitter u = 1/2, the middle.

    With `sigma_fn` or `alpha_fn`, samples that contribute almost nothing are dropped before colors and gradients are
    computed for them. With alpha_i = 1 - exp(-sigma_i d_i), a sample is kept if

        T_i = product over j < i of (1 - alpha_j) >= early_stop_eps   and   alpha_i >= alpha_thre

    The result is not differentiable; `Samples.positions` is.

    Args:
        origins: (n, 3).
        directions: (n, 3), of any length; t is in units of it. A ray whose direction is zero has no samples.
        grid: an `OccupancyGrid`, or a box (6), lower and upper corner, that is occupied everywhere.
        step: the smallest distance between samples, in units of a direction's length.
        near: where rays start to be sampled: a number, or (n), one for each ray.
        far: where rays stop being sampled: a number, or (n), one for each ray.
        scene_box: (6), lower and upper corner: only what is inside is sampled. None for the whole grid. It need not be
            one of the grid's boxes; the part that reaches beyond them has no samples.
        jitter: None; True or a generator, to draw an offset for each ray; or offsets (n) in [0, 1).
        max_steps: maximum number of samples per ray; the first ones are kept.
        cone_angle: growth of the distance between samples with t; 0 for even spacing.
        max_step: the largest distance between samples, at least `step`; a cone grows up to it.
        capacity: length of the returned arrays, which avoids a round trip to the host. Samples beyond it are cut
            (`Samples.total` is their number before that); unused entries are zero and belong to no ray. None
            returns arrays of the exact size, which takes one round trip on CUDA.
        sigma_fn: maps samples to densities (s) or (s, 1); called once, without gradients.
        alpha_fn: maps samples to alphas (s) or (s, 1), instead of `sigma_fn`.
        early_stop_eps: the smallest transmittance of a sample that is kept.
        alpha_thre: the smallest alpha of a sample that is kept.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Raises:
        ArgumentError: a number is out of range; `sigma_fn` is passed with `alpha_fn`, or one of them with `capacity`.
        ShapeError: a tensor has another shape, or `scene_box` is not a box; there are 2^31 samples or more.

    Example:
        >>> ray = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> samples = ts.render.march(*ray, (0, 0, 0, 1, 1, 1), step=0.25)
        >>> samples.t, samples.rays
        (tensor([1.1250, 1.3750, 1.6250, 1.8750]), tensor([[0, 4]], dtype=torch.int32))
        >>> ts.render.march(*ray, (0, 0, 0, 1, 1, 1), step=0.25, alpha_fn=lambda x: x.t > 1.5, alpha_thre=0.5).t
        tensor([1.6250])
    """
    given = [name for name, one in (("sigma_fn", sigma_fn), ("alpha_fn", alpha_fn)) if one is not None]
    if len(given) == 2:
        rows = [("expected", "one of them at most"), ("got", "both")]
        raise ArgumentError(refusal("`sigma_fn` and `alpha_fn` exclude each other in march", rows, "Pass one of them."))
    if given and capacity is not None:
        rows = [("expected", "capacity=None"), ("got", repr(capacity))]
        remedy = "Leave `capacity` out: the number of samples kept is known only afterwards."
        raise ArgumentError(refusal(f"`{given[0]}` and `capacity` exclude each other in march", rows, remedy))
    refuse_numbers(max_steps=max_steps, capacity=capacity, early_stop_eps=early_stop_eps, alpha_thre=alpha_thre)
    max_steps = read_positive("max_steps", "march", max_steps)
    course = plan_course(
        origins,
        directions,
        grid,
        step=step,
        near=near,
        far=far,
        scene_box=scene_box,
        jitter=jitter,
        cone_angle=cone_angle,
        max_step=max_step,
        engine=engine,
    )
    samples = Samples(*find_samples(course, max_steps, capacity)[:5], engine)
    if sigma_fn is None and alpha_fn is None:
        return samples
    with torch.no_grad():
        alphas = _compute_alphas(samples, sigma_fn, alpha_fn)
        seen = exclusive_prod(1 - alphas, samples.rays, engine=engine) >= early_stop_eps
        return _select(samples, seen & (alphas >= alpha_thre))


def _compute_alphas(samples: Samples, sigma_fn: Any, alpha_fn: Any) -> Tensor:
    """Compute the alphas of samples, (s), with `sigma_fn` or `alpha_fn` of `march`, in the dtype of the samples' t."""
    name, function = ("sigma_fn", sigma_fn) if sigma_fn is not None else ("alpha_fn", alpha_fn)
    assert function is not None
    values, count = function(samples), len(samples.t)
    if tuple(values.shape) not in ((count,), (count, 1)):
        rows = [("expected", f"({count}) or ({count}, 1)"), ("got", str(tuple(values.shape)))]
        raise ShapeError(refusal(f"`{name}` of `march` returned a wrong shape", rows, "Return one number per sample."))
    values = values.reshape(-1).to(samples.t)
    return values if sigma_fn is None else -torch.expm1(-values * samples.steps)


def _select(samples: Samples, keep: Tensor) -> Samples:
    """Return the samples for which the mask `keep`, (s), is True."""
    ray_index = samples.ray_index[keep]
    rays = pack(ray_index, len(samples.rays))
    total = torch.tensor(len(ray_index), device=keep.device)
    return Samples(rays, ray_index, samples.t[keep], samples.steps[keep], total, samples.engine)


@register_maker("positions")
def _make_positions_op(lang: Any, fp: str) -> Op:  # noqa: ARG001  # as all makers
    spec = "origins[n, 3], directions[n, 3], t[s], segments rays[n, 2]: i32 -> x[s, 3]"
    return steady(spec, kernels.positions(lang), adjoint="source")


@register_maker("directions")
def _make_directions_op(lang: Any, fp: str) -> Op:  # noqa: ARG001  # as all makers
    return steady("directions[n, 3], segments rays[n, 2]: i32 -> y[s, 3]", kernels.directions(lang), adjoint="source")
