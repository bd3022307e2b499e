"""Slow, readable reference implementations, in plain torch, of what the library computes with kernels.

They are public, so that you can compare your own kernels with them too.
"""

from ._compositing import Composited, composite, composite_alphas
from ._encodings import frequency, one_blob, spherical_harmonics, triangle_wave
from ._gaussians import (
    ProjectedGaussians,
    blend_gaussians,
    gaussian_colors,
    gaussian_covariance,
    project_gaussians,
    rasterize_gaussians,
)
from ._grid import GridLevel, grid, grid_levels
from ._losses import loss
from ._march import march
from ._networks import activation, mlp
from ._penalties import distortion_loss, entropy_penalty, opacity_penalty
from ._rays import pinhole_rays, ray_aabb_intersect
from ._resampling import importance_sampling, proposal_loss, searchsorted
from ._segments import accumulate, exclusive_prod, exclusive_sum, inclusive_prod, inclusive_sum, segment_sum
from ._splat import splat
from ._surfels import ProjectedSurfels, blend_surfels, project_surfels
from ._volume import Rendered, Shading, volume_render

__all__ = [
    "Composited",
    "GridLevel",
    "ProjectedGaussians",
    "ProjectedSurfels",
    "Rendered",
    "Shading",
    "accumulate",
    "activation",
    "blend_gaussians",
    "blend_surfels",
    "composite",
    "composite_alphas",
    "distortion_loss",
    "entropy_penalty",
    "exclusive_prod",
    "exclusive_sum",
    "frequency",
    "gaussian_colors",
    "gaussian_covariance",
    "grid",
    "grid_levels",
    "importance_sampling",
    "inclusive_prod",
    "inclusive_sum",
    "loss",
    "march",
    "mlp",
    "one_blob",
    "opacity_penalty",
    "pinhole_rays",
    "project_gaussians",
    "project_surfels",
    "proposal_loss",
    "rasterize_gaussians",
    "ray_aabb_intersect",
    "searchsorted",
    "segment_sum",
    "spherical_harmonics",
    "splat",
    "triangle_wave",
    "volume_render",
]
