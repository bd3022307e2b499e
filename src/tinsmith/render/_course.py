"""Courses: where rays may be sampled, with arguments checked once; and the samples found along them.

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
from ..operation import Op
from ..tracing import assume, is_tracing
from ._crossing import box_of, ray_aabb_intersect, refuse_range
from ._occupancy import OccupancyGrid
from ._ops import get_op, register_maker
from ._rule import steady

Jitter = Tensor | torch.Generator | bool | None
"""How offsets are chosen: none, drawn uniformly for each ray, or given."""
_MOST = 2**31 - 1
_LOWEST = -torch.finfo(torch.float32).max


class Course(NamedTuple):
    """Rays, and the ranges in which they may be sampled.

    Attributes:
        origins: (n, 3).
        directions: (n, 3).
        offsets: (n), the relative position of each ray's samples in their intervals.
        ranges: (n, 2), start and end of the sampled part of each ray.
        cells: box, words and resolution of the occupied cells.
        numbers: step, cone angle, log(1 + cone angle), longest step.
        engine: the engine that marches.
    """

    origins: Tensor
    directions: Tensor
    offsets: Tensor
    ranges: Tensor
    cells: tuple[Tensor, Tensor, Tensor]
    numbers: tuple[float, float, float, float]
    engine: str | None

    def select_rays(self, index: Tensor) -> Course:
        """The course of some of the rays."""
        names = ("origins", "directions", "offsets", "ranges")
        return self._replace(**{name: getattr(self, name)[index] for name in names})


class CourseSamples(NamedTuple):
    """Samples, packed: see `Samples`. `ends` (n), int32: where to begin for the samples after these."""

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
    """Check the arguments of a march, and read them. They are those of `march`."""
    refuse_numbers(step=step, cone_angle=cone_angle)
    if not max_step >= step:
        rows = [("expected", f"{step!r} (the step) or more"), ("got", repr(max_step))]
        raise ArgumentError(refusal("`max_step` is out of range in march", rows, "Pass another max_step."))
    origins, directions = origins.detach(), directions.detach()
    ranges = _find_ranges(origins, directions, near, far, scene_box, engine)
    numbers = (step, cone_angle, math.log1p(cone_angle), max_step)
    return Course(origins, directions, draw_offsets(jitter, origins), ranges, _read(grid, origins), numbers, engine)


def find_samples(course: Course, most: int, capacity: int | None = None, begin: Tensor | None = None) -> CourseSamples:
    """The first `most` samples of each ray, cut to a capacity; of those from the numbers `begin` (n) on, if given."""
    count, fill = get_op("march", course.engine, course.origins, begin is not None)
    box, bits, cells = course.cells
    reads = (course.origins, course.directions, box, bits, course.offsets, cells, course.ranges)
    numbers = course.numbers
    first = cells.new_empty(0) if begin is None else begin
    counts, runs, following = count(*reads, first, *numbers, most)
    ends = counts.cumsum(0, dtype=torch.int64)
    total = ends[-1] if len(ends) else ends.new_zeros(())
    size = _size(total) if capacity is None else capacity
    starts = (ends - counts).clamp(max=size)
    rays = torch.stack([starts, ends.clamp(max=size) - starts], 1).to(torch.int32)
    ray_index, t, steps = fill(*reads, runs, rays, *numbers, s=size)
    return CourseSamples(rays, ray_index, t, steps, total, following)


def draw_offsets(jitter: Jitter, like: Tensor) -> Tensor:
    """(n), in [0, 1), for the n rows of `like`."""
    if isinstance(jitter, Tensor):
        return jitter.detach()
    count, kind = like.shape[0], {"dtype": like.dtype, "device": like.device}
    if jitter is None or jitter is False:
        return torch.full((count,), 0.5, **kind)
    return torch.rand(count, generator=None if jitter is True else jitter, **kind)


def refuse_numbers(**numbers: Any) -> None:
    """Refuse what is out of range in `march`."""
    allowed = {
        "step": ("a positive number", lambda it: 0 < it < math.inf),
        "max_steps": ("1 to 2^31 - 1", lambda it: 1 <= it <= _MOST),
        "cone_angle": ("0 or a positive number", lambda it: 0 <= it < math.inf),
        "capacity": ("0 to 2^31 - 1, or None", lambda it: it is None or 0 <= it <= _MOST),
        "early_stop_eps": ("0 to 1", lambda it: 0 <= it <= 1),
        "alpha_thre": ("0 to 1", lambda it: 0 <= it <= 1),
    }
    for name, number in numbers.items():
        words, is_right = allowed[name]
        if not is_right(number):
            rows = [("expected", words), ("got", repr(number))]
            raise ArgumentError(refusal(f"`{name}` is out of range in march", rows, f"Pass another {name}."))


def _find_ranges(
    origins: Tensor,
    directions: Tensor,
    near: float | Tensor,
    far: float | Tensor,
    scene_box: Tensor | Sequence[float] | None,
    engine: str | None,
) -> Tensor:
    """(n, 2), near and far of each ray; where it misses the scene's box, near is infinite."""
    lowest = _LOWEST if isinstance(near, Tensor) else near
    highest = math.inf if isinstance(far, Tensor) else far
    refuse_range(lowest, highest, "march")
    count = origins.shape[0]
    ends = []
    for name, end in (("near", near), ("far", far)):
        if isinstance(end, Tensor) and tuple(end.shape) != (count,):
            rows = [("expected", f"a number, or ({count},): one a ray"), ("got", str(tuple(end.shape)))]
            raise ShapeError(refusal(f"`{name}` does not fit the rays of march", rows, "Broadcast with `.expand`."))
        whole = isinstance(end, Tensor)
        ends.append(end.detach().to(origins) if whole else origins.new_full((count,), end))
    if scene_box is not None:
        box = box_of(scene_box, origins, "scene_box").detach()
        crossing = ray_aabb_intersect(origins, directions, box, near=lowest, far=highest, engine=engine)
        # Of a ray that misses, t_near is `highest`, so that near is not before far.
        ends = [torch.maximum(ends[0], crossing.t_near), torch.minimum(ends[1], crossing.t_far)]
    return torch.stack(ends, 1)


def _read(grid: OccupancyGrid | Tensor | Sequence[float], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The box, the words and the resolution that the kernels read."""
    if isinstance(grid, OccupancyGrid):
        return grid.aabb.to(like), grid.bits, grid.cells
    bits = torch.full((1, 1, 1, 1), -1, dtype=torch.int64, device=like.device)
    return box_of(grid, like).detach(), bits, torch.ones(3, dtype=torch.int32, device=like.device)


def _size(total: Tensor) -> int:
    size = int(total)
    if is_tracing():  # a graph has no branch by a number of a tensor, and raises RuntimeError
        assume(size >= 0)
        assume(size <= _MOST)
        return size
    if size > _MOST:
        rows = [("expected", f"{_MOST} samples at most"), ("got", str(size))]
        raise ShapeError(refusal("march finds too many samples", rows, "Take fewer rays at a time, or a longer step."))
    return size


@register_maker("march")
def _march(lang: Any, fp: str, resumes: bool) -> tuple[Op, Op]:
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
