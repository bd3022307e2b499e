"""Rendering in rounds, without gradients: rays whose transmittance is below a threshold get no more samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import kernels
from .._errors import ArgumentError, ShapeError, refusal
from .._integers import read_positive
from ..operation import Op
from ..reference import Rendered
from ._course import Jitter, find_samples, plan_course, refuse_numbers
from ._march import Samples
from ._occupancy import OccupancyGrid
from ._ops import get_op, register_maker
from ._rule import steady
from ._segments import accumulate

Field = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""A function from positions (s, 3) and directions (s, 3) to densities (s) or (s, 1) and colors (s, c)."""
_MOST_A_ROUND = 64
"""Most samples of a ray in a round: of more, most would lie behind the end of the ray."""


@torch.no_grad()
def render_in_rounds(
    origins: Tensor,
    directions: Tensor,
    grid: OccupancyGrid | Tensor | Sequence[float],
    field: Field,
    *,
    step: float,
    near: float | Tensor = 0.0,
    far: float | Tensor = math.inf,
    scene_box: Tensor | Sequence[float] | None = None,
    jitter: Jitter = None,
    max_steps: int = 1024,
    cone_angle: float = 0.0,
    max_step: float = math.inf,
    background: Tensor | None = None,
    threshold: float = 1e-4,
    round_samples: int = 8,
    engine: str | None = None,
) -> Rendered:
    """Render a field along rays without gradients, a few samples of each ray at a time until the ray ends.

    In each round, every ray that is alive gets its next samples, the field is evaluated there, and the samples are
    composited onto the result so far. A ray is alive while its transmittance is at least `threshold` and the grid has
    samples for it. The fewer rays are alive, the more samples each one gets: with m of n rays alive,
    max(round_samples, min(n / m, 64)).

    The result is that of one pass, up to the order of summation:

        samples = march(origins, directions, grid, step=step, ...)
        densities, colors = field(samples.positions(origins, directions), samples.directions(directions))
        composite(densities, colors, samples.t, samples.steps, samples.rays, threshold=threshold, ...)

    It is faster where rays end early, at surfaces, and the field is expensive, since the field is not evaluated behind
    the ends. A round costs some launches, and on CUDA a round trip to the host; in fog, or for a cheap field, one pass
    is faster.

    Args:
        origins: (n, 3).
        directions: (n, 3), of any length; t is in units of it.
        grid: an `OccupancyGrid`, or a box (6), lower and upper corner, that is occupied everywhere.
        field: maps positions (s, 3) and directions (s, 3) of samples to densities (s) or (s, 1), per unit of length,
            not negative, and colors (s, c), any number of channels. Called once per round.
        step: the smallest distance between samples, in units of a direction's length, as in `march`.
        near: where rays start to be sampled: a number, or (n), one for each ray.
        far: where rays stop being sampled: a number, or (n), one for each ray.
        scene_box: (6), only what is inside is sampled; None for the whole grid.
        jitter: None; True or a generator, to draw an offset for each ray; or offsets (n) in [0, 1).
        max_steps: maximum number of samples per ray, in all rounds together.
        cone_angle: growth of the distance between samples with t; 0 for even spacing.
        max_step: the largest distance between samples.
        background: (c) or (n, c), the color behind all samples; None for 0.
        threshold: a ray ends once its transmittance is below this.
        round_samples: the minimum number of samples of each ray in a round.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        `Rendered(color, opacity, depth)`: (n, c), (n) and (n). The depth is not divided by the opacity.

    Raises:
        ArgumentError: a number is out of range.
        ShapeError: a tensor or a result of `field` has another shape, or a box is invalid.

    Example:
        >>> def fog(positions, directions):
        ...     return torch.full_like(positions[:, 0], 2.0), torch.ones_like(positions)
        >>> ray = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> ts.render.render_in_rounds(*ray, (0, 0, 0, 1, 1, 1), fog, step=0.01).opacity
        tensor([0.8647])
    """
    refuse_numbers(max_steps=max_steps)
    max_steps = read_positive("max_steps", "march", max_steps)
    numbers = [
        ("round_samples", round_samples, "1 or more", round_samples >= 1),
        ("threshold", threshold, "0 to 1", 0 <= threshold <= 1),
    ]
    for name, number, words, is_right in numbers:
        if not is_right:
            rows = [("expected", words), ("got", repr(number))]
            raise ArgumentError(refusal(f"`{name}` is out of range in render_in_rounds", rows, f"Pass another {name}."))
    range_options = {"step": step, "near": near, "far": far, "scene_box": scene_box, "jitter": jitter}
    course = plan_course(
        origins, directions, grid, **range_options, cone_angle=cone_angle, max_step=max_step, engine=engine
    )
    count = course.origins.shape[0]
    seen = _Seen(course.origins, threshold, engine)
    alive = torch.arange(count, device=origins.device)
    begin = torch.zeros(count, dtype=torch.int32, device=origins.device)
    taken, is_first = 0, True
    # The first round calls the field even without rays: only the field knows the number of channels.
    while is_first or (len(alive) and taken < max_steps):
        most = min(max(round_samples, min(count // max(len(alive), 1), _MOST_A_ROUND)), max_steps - taken)
        batch = find_samples(course, most, begin=begin)
        samples = Samples(*batch[:5], engine)
        left = seen.add(samples, alive, field, course.origins, course.directions)
        goes_on = ((samples.rays[:, 1] == most) & (left >= threshold)).nonzero()[:, 0]
        alive, begin, course = alive[goes_on], batch.ends[goes_on], course.select_rays(goes_on)
        taken, is_first = taken + most, False
    return seen.finish(background)


class _Seen:
    """The image so far. `sums` (n, c + 1) are colors and depth; `left` (n) is the transmittance of each ray."""

    def __init__(self, origins: Tensor, threshold: float, engine: str | None) -> None:
        self.left = torch.ones_like(origins[:, 0])
        self.sums: Tensor | None = None
        self.threshold, self.engine = threshold, engine

    def add(self, samples: Samples, alive: Tensor, field: Field, origins: Tensor, directions: Tensor) -> Tensor:
        """Evaluate the field at new samples of the rays `alive`, and composite them. Return these rays' transmittance.

        Args:
            samples: the samples of the m rays.
            alive: (m), the indices of the rays.
            field: the radiance field.
            origins: (m, 3), the rays' origins.
            directions: (m, 3), the rays' directions.
        """
        densities, colors = field(samples.positions(origins, directions), samples.directions(directions))
        densities, colors = _check_shapes(densities, colors, samples.t)
        shadows: Op = get_op("continued_weights", self.engine, densities)
        weights, left = shadows(densities, samples.steps, samples.rays, self.left[alive], self.threshold)
        values = torch.cat([colors, samples.t[:, None]], 1)
        sums = accumulate(weights, values, samples.rays, engine=self.engine)
        if self.sums is None:
            self.sums = sums.new_zeros(len(self.left), sums.shape[1])
        self.sums[alive] += sums  # no ray is in it twice
        self.left[alive] = left
        return left

    def finish(self, background: Tensor | None) -> Rendered:
        assert self.sums is not None
        color, depth = self.sums[:, :-1], self.sums[:, -1]
        if background is not None:
            color = color + self.left[:, None] * background.to(color)
        return Rendered(color, 1 - self.left, depth)


def _check_shapes(densities: Tensor, colors: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Check the densities and colors that `field` returned. Return them as (s) and (s, c), in the dtype of t.

    Raises:
        ShapeError: they have other shapes.
    """
    count = len(t)
    if tuple(densities.shape) not in ((count,), (count, 1)) or colors.ndim != 2 or len(colors) != count:
        rows = [("densities", str(tuple(densities.shape)), f"should be ({count},) or ({count}, 1)")]
        rows += [("colors", str(tuple(colors.shape)), f"should be ({count}, c)")]
        remedy = "Return one row per sample."
        raise ShapeError(refusal("`field` of render_in_rounds returned a wrong shape", rows, remedy))
    return densities.reshape(-1).to(t), colors.to(t)


@register_maker("continued_weights")
def _make_weights_op(lang: Any, fp: str) -> Op:
    spec = "densities[s], steps[s], segments rays[n, 2]: i32, before[n] -> weights[s], left[n]"
    return steady(spec, kernels.continued_weights(lang, fp=fp), init={"left": "empty"})
