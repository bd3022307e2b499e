"""The radiance field: density and colour at positions, seen in directions. A hash grid and two small networks."""

from __future__ import annotations

import torch
from torch import Tensor

from ...nn import Encoding, Network, NetworkWithInputEncoding

_FEATURES = 15  # numbers that the density's network passes to the colour's network
_START = -1.5  # initial exponent of the density: the box starts as a transparent haze
_MOST = 11.0  # exp of it is opaque within a thousandth of the box; floats are far from their end

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
COLOUR = {"n_neurons": 32, "n_hidden_layers": 2, "output_activation": "Sigmoid"}


class Field(torch.nn.Module):
    """Density and colour within a box.

    Args:
        bound: the box goes from -bound to bound.
        seed: of the initial parameters.
        engine: the engine of the encodings.
    """

    def __init__(self, bound: float, seed: int, engine: str | None) -> None:
        super().__init__()
        self.bound = bound
        # Without padding: checkpoints of version 0.1.0 resume.
        self.inside = NetworkWithInputEncoding(3, 1 + _FEATURES, GRID, DENSITY, seed, engine=engine, alignment=1)
        self.harmonics = Encoding(3, HARMONICS, engine=engine)
        self.colour = Network(_FEATURES + self.harmonics.n_output_dims, 3, COLOUR, seed + 1, alignment=1)

    def density(self, positions: Tensor) -> Tensor:
        """(s): per unit of length, from (s, 3)."""
        return _density(self._inside(positions))

    def forward(self, positions: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        """Densities (s) and colours (s, 3) at positions, seen in directions of length 1."""
        features = self._inside(positions)
        harmonics = self.harmonics((directions + 1) / 2)
        return _density(features), self.colour(torch.cat([features[:, 1:], harmonics], -1))

    def _inside(self, positions: Tensor) -> Tensor:
        return self.inside((positions / self.bound + 1) / 2)


def _density(features: Tensor) -> Tensor:
    return (features[:, 0] + _START).clamp(max=_MOST).exp()
