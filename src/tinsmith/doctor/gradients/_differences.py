"""Differences: the slope of a function along a direction, from values beside a point, and whether it has one there.

With cotangents c, outputs y and a step h along d:

    central = sum c (y(x + h d) - y(x - h d)) / 2 h
    above   = sum c (y(x + h d) - y(x)) / h             below = sum c (y(x) - y(x - h d)) / h

Where the function is smooth, above and below meet as h shrinks; at a kink they do not, and every number between them is
a derivative that somebody may choose. The bounds are taken output by output: kinks of two may cancel in the sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ._function import Function


class Slope(NamedTuple):
    """A slope, and what is known of it.

    Attributes:
        central: the central difference.
        least, greatest: bounds of what may be chosen for a derivative; at a smooth point near to each other.
        noise: how far rounding alone may have moved it.
        kind: "smooth", "kink" (two slopes), "jump" (steeper and steeper) or "undefined" (no value on one side).
    """

    central: float
    least: float
    greatest: float
    noise: float
    kind: str = "smooth"

    @property
    def gap(self) -> float:
        """How far the one-sided slopes are apart."""
        return self.greatest - self.least


@dataclass(frozen=True)
class Steps:
    """A function and a point, to step away from.

    Attributes:
        function: what is differentiated, without a graph.
        values: the point, by name.
        cotangents: by the output's name, in float64.
        here: outputs at the point.
        eps: the step, for numbers up to 1; times their size for greater ones.
        precision: relative rounding of the function's outputs.
    """

    function: Function
    values: Mapping[str, torch.Tensor]
    cotangents: Mapping[str, torch.Tensor]
    here: Mapping[str, torch.Tensor]
    eps: float
    precision: float

    def slope(self, name: str, direction: torch.Tensor, step: float) -> Slope:
        """The slope along a direction of one input, with one step."""
        point = self.values[name]
        above, below = (point + (sign * step * direction).to(point.dtype) for sign in (1, -1))
        with torch.no_grad():
            behind = self.function({**self.values, name: above})
            before = self.function({**self.values, name: below})
        size = ((above.double() - below.double()) * direction).sum().item() / (direction * direction).sum().item() / 2
        return self._measure_slope(behind, before, size)

    def _measure_slope(
        self, behind: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor], step: float
    ) -> Slope:
        central = least = greatest = noise = 0.0
        for name, cotangent in self.cotangents.items():
            c = cotangent.double()
            high, low, here = (one[name].double() for one in (behind, before, self.here))
            ups, downs = c * (high - here) / step, c * (here - low) / step
            central += (c * (high - low)).sum().item() / (2 * step)
            least += torch.minimum(ups, downs).sum().item()
            greatest += torch.maximum(ups, downs).sum().item()
            # A value that did not move has no rounding error from the step.
            moved = (high != low) | (high != here)
            noise += (c.abs() * torch.maximum(high.abs(), low.abs()) * moved).sum().item() * self.precision / step
        kind = "smooth" if math.isfinite(central) and math.isfinite(greatest - least) else "undefined"
        return Slope(central, least, greatest, noise, kind)


def slope_along(steps: Steps, name: str, direction: torch.Tensor, size: float, tolerance: float) -> Slope:
    """The slope along a direction, looked at more closely where its sides do not meet.

    Args:
        steps: the function and the point.
        name: the input.
        direction: in its shape, float64.
        size: of the numbers that change: the step is a part of it.
        tolerance: how far apart the sides may be without a second look.
    """
    step = steps.eps * max(1.0, size)
    slope = steps.slope(name, direction, step)
    if slope.kind == "smooth" and slope.gap <= tolerance + 4 * slope.noise:
        return slope
    return closer(steps, name, direction, step, slope)


def closer(steps: Steps, name: str, direction: torch.Tensor, step: float, first: Slope) -> Slope:
    """The slope with the steps that tell most, and what kind of point it is at."""
    ladder = [steps.slope(name, direction, step * factor) for factor in (100.0, 10.0, 1.0, 0.1, 0.01)]
    near, nearest = ladder[2], ladder[3]
    if nearest.kind == "undefined":
        return nearest
    if near.kind == "undefined":
        return nearest if nearest.gap < 4 * nearest.noise else nearest._replace(kind="undefined")
    if nearest.gap > 8 * nearest.noise and nearest.gap > 0.5 * near.gap > 0:
        return nearest._replace(kind="jump") if nearest.gap > 2 * near.gap else nearest._replace(kind="kink")
    smooth = [one for one in ladder if one.kind == "smooth"]
    pairs = sorted(zip(smooth[1:], smooth, strict=False), key=lambda pair: abs(pair[0].central - pair[1].central))
    if not pairs:
        return first
    best, other = pairs[0]
    return best._replace(noise=max(best.noise, abs(best.central - other.central)))
