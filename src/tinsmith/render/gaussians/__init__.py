"""Gaussian splatting: 3-D Gaussians to images, differentiable, with the interface of gsplat 1.5.

The axes are the same everywhere: N Gaussians, C cameras, D channels, H x W pixels; `...` are batches of scenes. Packed
tensors have nnz rows, one for each visible pair of a camera and a Gaussian. Poses are world to camera: x right, y down,
z ahead.
"""

from __future__ import annotations

from ...nn.optimizers import SelectiveAdam
from ._accumulate import accumulate
from ._blend import rasterize_to_pixels
from ._blend_2dgs import rasterize_to_pixels_2dgs
from ._covariance import quat_scale_to_covar_preci
from ._default_strategy import DefaultStrategy
from ._harmonics import spherical_harmonics
from ._mcmc_strategy import MCMCStrategy, compute_relocation
from ._projection import fully_fused_projection
from ._projection_2dgs import fully_fused_projection_2dgs
from ._rasterization import rasterization
from ._rasterization_2dgs import RasterizedSurfels, rasterization_2dgs
from ._splat_files import export_splats, load_ply, load_splats, save_ply, save_splats
from ._spz import load_spz, save_spz
from ._tiles import isect_offset_encode, isect_tiles

__all__ = [
    "DefaultStrategy",
    "MCMCStrategy",
    "RasterizedSurfels",
    "SelectiveAdam",
    "accumulate",
    "compute_relocation",
    "export_splats",
    "fully_fused_projection",
    "fully_fused_projection_2dgs",
    "isect_offset_encode",
    "isect_tiles",
    "load_ply",
    "load_splats",
    "load_spz",
    "quat_scale_to_covar_preci",
    "rasterization",
    "rasterization_2dgs",
    "rasterize_to_pixels",
    "rasterize_to_pixels_2dgs",
    "save_ply",
    "save_splats",
    "save_spz",
    "spherical_harmonics",
]
