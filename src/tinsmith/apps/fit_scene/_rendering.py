"""Renders rays: marches through the occupied part of the box, evaluates the field, composites."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...render import OccupancyGrid, composite, distortion_loss, march
from ._field import Field

_RESOLUTION = 64  # cells along a side of the box
_DECAY = 0.5  # of what is known of a cell; at nerfacc's 0.95 three times as many samples lie in empty cells by step 300
_OPAQUE = 1e-3  # transmittance at which a ray ends
INPUTS = 10  # numbers a ray: origin, direction, the ground's colour, and where in a step its first sample is


class Seen(NamedTuple):
    """The result for rays: colour (n, 3), opacity (n), depth (n) times opacity, distortion (n)."""

    colour: Tensor
    opacity: Tensor
    depth: Tensor
    distortion: Tensor

    @classmethod
    def of(cls, columns: Tensor) -> Seen:
        """From the output of `Scene`."""
        return cls(columns[:, :3], columns[:, 3], columns[:, 4], columns[:, 5])


class Scene(torch.nn.Module):
    """A field and the occupied part of its box, as a function of rays.

    Args:
        bound: the box goes from -bound to bound.
        samples: of a ray that crosses the box from side to side.
        with_distortion: whether distortion is computed; else it is 0.
    """

    def __init__(self, bound: float, samples: int, seed: int, engine: str | None, with_distortion: bool) -> None:
        super().__init__()
        self.field = Field(bound, seed, engine)
        box = torch.tensor([-bound] * 3 + [bound] * 3)
        self.step = 2 * bound / samples
        self.grid = OccupancyGrid(box, _RESOLUTION, decay=_DECAY, engine=engine)
        self.engine, self.with_distortion = engine, with_distortion

    def solidity(self, positions: Tensor) -> Tensor:
        """(s): densities times a step, by which a grid distinguishes empty from occupied cells."""
        return self.field.density(positions) * self.step

    def forward(self, x: Tensor) -> Tensor:
        """(n, 10), see `INPUTS`, to (n, 6), see `Seen`. Directions have length 1."""
        origins, directions, ground, offsets = x.split([3, 3, 3, 1], 1)
        samples = march(origins, directions, self.grid, step=self.step, jitter=offsets[:, 0], engine=self.engine)
        at = samples.positions(origins, directions)
        densities, colours = self.field(at, samples.directions(directions))
        path = (samples.t, samples.steps, samples.rays)
        seen = composite(densities, colours, *path, background=ground, threshold=_OPAQUE, engine=self.engine)
        distortion = distortion_loss(seen.weights, *path) if self.with_distortion else torch.zeros_like(seen.opacity)
        return torch.cat([seen.colour, torch.stack([seen.opacity, seen.depth, distortion], 1)], 1)
