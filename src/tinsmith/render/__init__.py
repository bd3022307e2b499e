"""Differentiable rendering: rays, marching, compositing, direct volume rendering.

The axes are the same everywhere: n rays, s samples in total, c channels. Samples are packed: those of a ray are next to
each other, and `rays[n, 2]` (int32) contains the start and the count of each ray's samples. Directions need not have
length 1: t is in units of a direction's length.

`nerfacc` has the same functions with nerfacc's arguments. Its names that do not collide with this package's are
exported here too.
"""

from __future__ import annotations

from ..reference import Composited, Rendered, Shading
from . import gaussians, nerfacc
from ._cameras import Rays, image_rays, pinhole_rays
from ._composite import AlphaWeights, composite, composite_alphas, weights_from_alphas
from ._crossing import Crossing, ray_aabb_intersect
from ._fields import TruncExp, contract, trunc_exp, uncontract
from ._march import Samples, march
from ._occupancy import OccupancyGrid
from ._packed import pack
from ._penalties import distortion_loss, entropy_penalty, opacity_penalty
from ._pixel_sampler import PixelSampler, PixelSamples
from ._proposals import ProposalSamples, sample_proposals
from ._resampling import Intervals, Neighbors, importance_sampling, proposal_loss, searchsorted
from ._rounds import render_in_rounds
from ._segments import accumulate, exclusive_prod, exclusive_sum, inclusive_prod, inclusive_sum, segment_sum
from ._similarity import l1_ssim_loss, ssim
from ._volume import volume_render
from .captures import Capture, Observations, load_blender, load_colmap
from .nerfacc import (
    OccGridEstimator,
    PropNetEstimator,
    RayIntervals,
    RaySamples,
    accumulate_along_rays,
    accumulate_along_rays_,
    distortion,
    get_proposal_requires_grad_fn,
    pack_info,
    render_transmittance_from_alpha,
    render_transmittance_from_density,
    render_visibility_from_alpha,
    render_visibility_from_density,
    render_weight_from_alpha,
    render_weight_from_density,
    rendering,
    traverse_grids,
)

__all__ = [
    "AlphaWeights",
    "Capture",
    "Composited",
    "Crossing",
    "Intervals",
    "Neighbors",
    "Observations",
    "OccGridEstimator",
    "OccupancyGrid",
    "PixelSampler",
    "PixelSamples",
    "PropNetEstimator",
    "ProposalSamples",
    "RayIntervals",
    "RaySamples",
    "Rays",
    "Rendered",
    "Samples",
    "Shading",
    "TruncExp",
    "accumulate",
    "accumulate_along_rays",
    "accumulate_along_rays_",
    "composite",
    "composite_alphas",
    "contract",
    "distortion",
    "distortion_loss",
    "entropy_penalty",
    "exclusive_prod",
    "exclusive_sum",
    "gaussians",
    "get_proposal_requires_grad_fn",
    "image_rays",
    "importance_sampling",
    "inclusive_prod",
    "inclusive_sum",
    "l1_ssim_loss",
    "load_blender",
    "load_colmap",
    "march",
    "nerfacc",
    "opacity_penalty",
    "pack",
    "pack_info",
    "pinhole_rays",
    "proposal_loss",
    "ray_aabb_intersect",
    "render_in_rounds",
    "render_transmittance_from_alpha",
    "render_transmittance_from_density",
    "render_visibility_from_alpha",
    "render_visibility_from_density",
    "render_weight_from_alpha",
    "render_weight_from_density",
    "rendering",
    "sample_proposals",
    "searchsorted",
    "segment_sum",
    "ssim",
    "traverse_grids",
    "trunc_exp",
    "uncontract",
    "volume_render",
    "weights_from_alphas",
]
