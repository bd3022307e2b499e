"""The slow, readable twins of what the library does fast, in plain torch.

They are public: compare your own kernels against them too.
"""

from ._encodings import frequency, one_blob, spherical_harmonics, triangle_wave
from ._grid import GridLevel, grid, grid_levels
from ._losses import loss
from ._march import march
from ._networks import activation, mlp
from ._rays import pinhole_rays, ray_aabb_intersect
from ._splat import splat

__all__ = [
    "GridLevel",
    "activation",
    "frequency",
    "grid",
    "grid_levels",
    "loss",
    "march",
    "mlp",
    "one_blob",
    "pinhole_rays",
    "ray_aabb_intersect",
    "spherical_harmonics",
    "splat",
    "triangle_wave",
]
