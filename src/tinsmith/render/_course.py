"""Courses: rays with the ranges in which they may be sampled, checked once; and the search for samples along them.

`march` samples a course once; `render_in_rounds` takes a few samples at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import kernels
from .._errors import ArgumentError, ShapeError, refusal
from .._integers import read_integer
from ..operation import Op
from ..tracing import assume, is_tracing
from ._crossing import convert_box, ray_aabb_intersect, refuse_range
from ._occupancy import OccupancyGrid
from ._ops import get_op, register_maker
from ._rule import steady

Jitter = Tensor | torch.Generator | bool | None
"""The choice of each ray's offset: the middle (None or False), drawn uniformly (True or a generator), or given (n)."""
_MOST = 2**31 - 1
_LOWEST = -torch.finfo(torch.float32).max


class Course(NamedTuple):
    """Rays, and the ranges in which they may be sampled.

    Attributes:
        origins: (n, 3).
        directions: (n, 3).
        offsets: (n), the relative position of each ray's samples in their intervals.
        ranges: (n, 2), start and end of the sampled part of each ray.
        cells: the box, the bit field and the resolution of the occupied cells.
        numbers: step, cone angle, log(1 + cone angle), longest step.
        engine: the engine that runs the kernels.
    """

    origins: Tensor
    directions: Tensor
    offsets: Tensor
    ranges: Tensor
    cells: tuple[Tensor, Tensor, Tensor]
    numbers: tuple[float, float, float, float]
    engine: str | None

    def select_rays(self, index: Tensor) -> Course:
        """Return the course of the rays with these indices."""
        names = ("origins", "directions", "offsets", "ranges")
        return self._replace(**{name: getattr(self, name)[index] for name in names})


class CourseSamples(NamedTuple):
    """Packed samples, see `Samples`. `ends` (n), int32, is the `begin` with which the search for more continues."""

    rays: Tensor
    ray_index: Tensor
    t: Tensor
    steps: Tensor
    total: Tensor
    ends: Tensor


def plan_course(
    origins: Tensor,
    directions: Tensor,
    grid: OccupancyGrid | Tensor | Sequence[float],
    *,
    step: float,
    near: float | Tensor,
    far: float | Tensor,
    scene_box: Tensor | Sequence[float] | None,
    jitter: Jitter,
    cone_angle: float,
    max_step: float,
    engine: str | None,
) -> Course:
    """Check the arguments of `march`, and convert them to a course: rays, ranges, offsets and occupied cells."""
    refuse_numbers(step=step, cone_angle=cone_angle)
    if not max_step >= step:
        rows = [("expected", f"{step!r} (the step) or more"), ("got", repr(max_step))]
        raise ArgumentError(refusal("`max_step` is out of range in march", rows, "Pass another max_step."))
    origins, directions = origins.detach(), directions.detach()
    ranges = _find_ranges(origins, directions, near, far, scene_box, engine)
    numbers = (step, cone_angle, math.log1p(cone_angle), max_step)
    return Course(
        origins,
        directions,
        draw_offsets(jitter, origins.shape[:1], origins),
        ranges,
        _read_grid(grid, origins),
        numbers,
        engine,
    )


def find_samples(course: Course, most: int, capacity: int | None = None, begin: Tensor | None = None) -> CourseSamples:
    """Find the first `most` samples of each ray in occupied cells.

    Args:
        course: the rays.
        most: maximum number of samples per ray.
        capacity: length of the returned arrays; samples beyond it are cut. None: as many as there are.
        begin: (n), int32, the step number from which each ray is searched; None for 0.
    """
    count, fill = get_op("march", course.engine, course.origins, begin is not None)
    box, bits, cells = course.cells
    reads = (course.origins, course.directions, box, bits, course.offsets, cells, course.ranges)
    numbers = course.numbers
    first = cells.new_empty(0) if begin is None else begin
    counts, runs, following = count(*reads, first, *numbers, most)
    ends = counts.cumsum(0, dtype=torch.int64)
    total = ends[-1] if len(ends) else ends.new_zeros(())
    size = _read_size(total) if capacity is None else capacity
    starts = (ends - counts).clamp(max=size)
    rays = torch.stack([starts, ends.clamp(max=size) - starts], 1).to(torch.int32)
    ray_index, t, steps = fill(*reads, runs, rays, *numbers, s=size)
    return CourseSamples(rays, ray_index, t, steps, total, following)


def draw_offsets(jitter: Jitter, shape: Sequence[int], like: Tensor) -> Tensor:
    """Return offsets in [0, 1) of dtype and device of `like`: given, drawn on the generator's device, or all 1/2."""
    if isinstance(jitter, Tensor):
        return jitter.detach()
    if jitter is None or jitter is False:
        return like.new_full(shape, 0.5)
    generator = None if jitter is True else jitter
    device = like.device if generator is None else generator.device
    return torch.rand(shape, generator=generator, dtype=like.dtype, device=device).to(like.device)


def refuse_numbers(**numbers: Any) -> None:
    """Raise ArgumentError if one of these arguments of `march` is out of range."""
    allowed = {
        "step": ("a positive number", lambda it: 0 < it < math.inf),
        "max_steps": ("an integer, 1 to 2^31 - 1", lambda it: _is_between(1, it)),
        "cone_angle": ("0 or a positive number", lambda it: 0 <= it < math.inf),
        "capacity": ("an integer, 0 to 2^31 - 1, or None", lambda it: it is None or _is_between(0, it)),
        "early_stop_eps": ("0 to 1", lambda it: 0 <= it <= 1),
        "alpha_thre": ("0 to 1", lambda it: 0 <= it <= 1),
    }
    for name, number in numbers.items():
        words, is_right = allowed[name]
        if not is_right(number):
            rows = [("expected", words), ("got", repr(number))]
            raise ArgumentError(refusal(f"`{name}` is out of range in march", rows, f"Pass another {name}."))


def _is_between(least: int, given: object) -> bool:
    number = read_integer(given)
    return number is not None and least <= number <= _MOST


def _find_ranges(
    origins: Tensor,
    directions: Tensor,
    near: float | Tensor,
    far: float | Tensor,
    scene_box: Tensor | Sequence[float] | None,
    engine: str | None,
) -> Tensor:
    """Compute near and far of each ray, (n, 2), clipped to the scene's box. A ray that misses it has an empty range."""
    lowest = _LOWEST if isinstance(near, Tensor) else near
    highest = math.inf if isinstance(far, Tensor) else far
    refuse_range(lowest, highest, "march")
    count = origins.shape[0]
    ends = []
    for name, end in (("near", near), ("far", far)):
        if isinstance(end, Tensor) and tuple(end.shape) != (count,):
            rows = [("expected", f"a number, or ({count},): one per ray"), ("got", str(tuple(end.shape)))]
            raise ShapeError(refusal(f"`{name}` does not fit the rays of `march`", rows, "Broadcast with `.expand`."))
        whole = isinstance(end, Tensor)
        ends.append(end.detach().to(origins) if whole else origins.new_full((count,), end))
    if scene_box is not None:
        box = convert_box(scene_box, origins, "scene_box").detach()
        crossing = ray_aabb_intersect(origins, directions, box, near=lowest, far=highest, engine=engine)
        # For a ray that misses the box t_near is `highest`, so that near is not before far.
        ends = [torch.maximum(ends[0], crossing.t_near), torch.minimum(ends[1], crossing.t_far)]
    return torch.stack(ends, 1)


def _read_grid(grid: OccupancyGrid | Tensor | Sequence[float], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the box, the bit field and the resolution of a grid, for the kernels. A plain box is one occupied cell."""
    if isinstance(grid, OccupancyGrid):
        return grid.aabb.to(like), grid.bits, grid.cells
    bits = torch.full((1, 1, 1, 1), -1, dtype=torch.int64, device=like.device)
    return convert_box(grid, like).detach(), bits, torch.ones(3, dtype=torch.int32, device=like.device)


def _read_size(total: Tensor) -> int:
    size = int(total)
    if is_tracing():  # a graph cannot branch on a tensor's value: the error below would raise RuntimeError
        assume(size >= 0)
        assume(size <= _MOST)
        return size
    if size > _MOST:
        rows = [("expected", f"{_MOST} samples at most"), ("got", str(size))]
        raise ShapeError(refusal("march found too many samples", rows, "Use fewer rays at a time, or a longer step."))
    return size


@register_maker("march")
def _make_march_ops(lang: Any, fp: str, resumes: bool) -> tuple[Op, Op]:
    march = kernels.march(lang, fp=fp, resumes=resumes)
    reads = "origins[n, 3], directions[n, 3], aabb[6], bits[l, x, y, z]: i64, offsets[n], cells[3]: i32, ranges[n, 2]"
    rays = "n" if resumes else "0"
    counted = f"counts[n]: i32, runs[n, {kernels.RUNS}, 2]: i32, end[{rays}]: i32"
    init = {"counts": "empty", "runs": "empty", "end": "empty"}
    count = steady(f"{reads}, begin[{rays}]: i32 -> {counted}", march.count, init=init)
    fill = steady(
        f"{reads}, runs[n, _, 2]: i32, segments rays[n, 2]: i32 -> ray_index[s]: i32, t[s], steps[s]", march.fill
    )
    return count, fill
