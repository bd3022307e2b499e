"""The radiance field, and how rays see it.

A hash grid and two small networks compute density and color from positions and viewing directions. A scene marches
through the occupied part of the box, evaluates the field, and composites.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...nn import Encoding, Network, NetworkWithInputEncoding
from ...render import OccupancyGrid, composite, distortion_loss, march

_FEATURES = 15  # features that the density network passes to the color network
_START = -1.5  # initial exponent of the density: the box starts as a transparent haze
_MOST = 11.0  # upper bound of the exponent: opaque within a thousandth of the box, far from an overflow
_RESOLUTION = 64  # cells along a side of the box
_DECAY = 0.5  # of a cell's occupancy; with nerfacc's 0.95, step 300 has three times as many samples in empty cells
_OPAQUE = 1e-3  # transmittance at which a ray ends
INPUTS = 10  # numbers of a ray: origin, direction, background color, and the first sample's offset in a step

GRID = {
    "otype": "HashGrid",
    "n_levels": 8,
    "n_features_per_level": 2,
    "log2_hashmap_size": 15,
    "base_resolution": 8,
    "per_level_scale": 1.45,
}
DENSITY = {"n_neurons": 32, "n_hidden_layers": 1}
HARMONICS = {"otype": "SphericalHarmonics", "degree": 3}
COLOR = {"n_neurons": 32, "n_hidden_layers": 2, "output_activation": "Sigmoid"}


class Field(torch.nn.Module):
    """Density and color within a box.

    Args:
        bound: the box extends from -bound to bound on each axis.
        seed: the seed of the initial parameters.
        engine: the engine of the encodings.
    """

    def __init__(self, bound: float, seed: int, engine: str | None) -> None:
        super().__init__()
        self.bound = bound
        # Without padding: checkpoints of version 0.1.0 resume.
        self.inside = NetworkWithInputEncoding(3, 1 + _FEATURES, GRID, DENSITY, seed, engine=engine, alignment=1)
        self.harmonics = Encoding(3, HARMONICS, engine=engine)
        self.color = Network(_FEATURES + self.harmonics.n_output_dims, 3, COLOR, seed + 1, alignment=1)

    def density(self, positions: Tensor) -> Tensor:
        """Return the density (s), per unit of length, at positions (s, 3)."""
        return _density(self._inside(positions))

    def forward(self, positions: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        """Return densities (s) and colors (s, 3) at positions (s, 3), seen in directions (s, 3) of length 1."""
        features = self._inside(positions)
        harmonics = self.harmonics((directions + 1) / 2)
        return _density(features), self.color(torch.cat([features[:, 1:], harmonics], -1))

    def _inside(self, positions: Tensor) -> Tensor:
        return self.inside((positions / self.bound + 1) / 2)


def _density(features: Tensor) -> Tensor:
    return (features[:, 0] + _START).clamp(max=_MOST).exp()


class Seen(NamedTuple):
    """The result for n rays: color (n, 3), opacity (n), depth times opacity (n), distortion (n)."""

    color: Tensor
    opacity: Tensor
    depth: Tensor
    distortion: Tensor

    @classmethod
    def from_columns(cls, columns: Tensor) -> Seen:
        """Split the output (n, 6) of `Scene` into its parts."""
        return cls(columns[:, :3], columns[:, 3], columns[:, 4], columns[:, 5])


class Scene(torch.nn.Module):
    """A field and the occupied part of its box, as a function of rays.

    Args:
        bound: the box extends from -bound to bound on each axis.
        samples: the number of samples of a ray that crosses the box from side to side.
        with_distortion: whether the distortion is computed; otherwise it is 0.
    """

    def __init__(self, bound: float, samples: int, seed: int, engine: str | None, with_distortion: bool) -> None:
        super().__init__()
        self.field = Field(bound, seed, engine)
        box = torch.tensor([-bound] * 3 + [bound] * 3)
        self.step = 2 * bound / samples
        self.grid = OccupancyGrid(box, _RESOLUTION, decay=_DECAY, engine=engine)
        self.engine, self.with_distortion = engine, with_distortion

    def solidity(self, positions: Tensor) -> Tensor:
        """Return density times the step's length (s) at positions (s, 3), which decides whether a grid cell counts as
        empty.
        """
        return self.field.density(positions) * self.step

    def forward(self, x: Tensor) -> Tensor:
        """Render rays (n, 10), with the columns of `INPUTS`, to (n, 6), with the columns of `Seen`. Directions have
        length 1.
        """
        origins, directions, ground, offsets = x.split([3, 3, 3, 1], 1)
        samples = march(origins, directions, self.grid, step=self.step, jitter=offsets[:, 0], engine=self.engine)
        at = samples.positions(origins, directions)
        densities, colors = self.field(at, samples.directions(directions))
        path = (samples.t, samples.steps, samples.rays)
        seen = composite(densities, colors, *path, background=ground, threshold=_OPAQUE, engine=self.engine)
        distortion = distortion_loss(seen.weights, *path) if self.with_distortion else torch.zeros_like(seen.opacity)
        return torch.cat([seen.color, torch.stack([seen.opacity, seen.depth, distortion], 1)], 1)
