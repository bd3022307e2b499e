"""Kernels of Gaussians and surfels: projection, color, and blending of the tiles of a picture."""

from ._absolute import gaussian_absolute
from ._blend import gaussian_blend
from ._covariance import gaussian_covariance
from ._harmonics import gaussian_harmonics
from ._projection import gaussian_projection, gaussian_radii
from ._surfel_blend import surfel_blend
from ._surfel_projection import surfel_projection, surfel_radii

__all__ = [
    "gaussian_absolute",
    "gaussian_blend",
    "gaussian_covariance",
    "gaussian_harmonics",
    "gaussian_projection",
    "gaussian_radii",
    "surfel_blend",
    "surfel_projection",
    "surfel_radii",
]
