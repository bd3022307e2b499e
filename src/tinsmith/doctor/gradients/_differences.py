"""Differences: the slope of a function along a direction, computed from values at nearby points; and whether it exists.

With cotangents c, outputs y and a step h along d:

    central = sum c (y(x + h d) - y(x - h d)) / 2 h
    above   = sum c (y(x + h d) - y(x)) / h             below = sum c (y(x) - y(x - h d)) / h

If the function is smooth, above and below converge to one number as h decreases. At a kink they do not, and every
number between them is a valid derivative. The bounds are computed for each output: the kinks of two may cancel in the
sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ._function import Function


class Slope(NamedTuple):
    """A slope, with its uncertainty.

    Attributes:
        central: the central difference.
        least, greatest: bounds of the valid derivatives; close together at a smooth point.
        noise: the possible error from rounding.
        kind: "smooth", "kink" (two slopes), "jump" (steeper with smaller steps) or "undefined" (no value on one side).
    """

    central: float
    least: float
    greatest: float
    noise: float
    kind: str = "smooth"

    @property
    def gap(self) -> float:
        """The difference between the one-sided slopes."""
        return self.greatest - self.least


@dataclass(frozen=True)
class Steps:
    """A function and a point at which differences are taken.

    Attributes:
        function: the function, run without a graph.
        values: the point: tensors by the input's name.
        cotangents: by the output's name, in float64.
        here: the outputs at the point.
        eps: the step for numbers up to 1; it is multiplied by the size of larger ones.
        precision: the relative rounding error of the function's outputs.
    """

    function: Function
    values: Mapping[str, torch.Tensor]
    cotangents: Mapping[str, torch.Tensor]
    here: Mapping[str, torch.Tensor]
    eps: float
    precision: float

    def slope(self, name: str, direction: torch.Tensor, step: float) -> Slope:
        """Compute the slope along a direction of one input, with one step size."""
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


def measure_slope(steps: Steps, name: str, direction: torch.Tensor, size: float, tolerance: float) -> Slope:
    """Compute the slope along a direction; if the one-sided slopes differ, try several step sizes.

    Args:
        steps: the function and the point.
        name: the input.
        direction: has the input's shape, float64.
        size: the size of the numbers that change; the step is proportional to it.
        tolerance: the gap between the one-sided slopes that is accepted without further steps.
    """
    step = steps.eps * max(1.0, size)
    slope = steps.slope(name, direction, step)
    if slope.kind == "smooth" and slope.gap <= tolerance + 4 * slope.noise:
        return slope
    return refine_slope(steps, name, direction, step, slope)


def refine_slope(steps: Steps, name: str, direction: torch.Tensor, step: float, first: Slope) -> Slope:
    """Compute the slope with several step sizes; return the most accurate one, classified as smooth, kink, jump or
    undefined.
    """
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
