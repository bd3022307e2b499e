"""Volume rendering with the interface of nerfacc 0.5.3: its names, arguments, defaults and results.

A training loop that was written for nerfacc runs with `from tinsmith.render import nerfacc`, on the CPU and on CUDA.
Only nerfacc's `VDBEstimator` and `traverse_vdbs` are missing, since they need fVDB.

Samples are packed: those of a ray are next to each other, `ray_indices` (all_samples,) has the ray of each, and
`packed_info` (n_rays, 2) the start and the count of each ray's samples. Or they are batched, with the same number on
each ray.
"""

from __future__ import annotations

from ._grids import ray_aabb_intersect, traverse_grids
from ._occ_grid_estimator import OccGridEstimator
from ._prop_net_estimator import PropNetEstimator, get_proposal_requires_grad_fn
from ._resampling import importance_sampling, searchsorted
from ._samples import RayIntervals, RaySamples, pack_info
from ._scans import exclusive_prod, exclusive_sum, inclusive_prod, inclusive_sum
from ._volrend import (
    accumulate_along_rays,
    accumulate_along_rays_,
    distortion,
    render_transmittance_from_alpha,
    render_transmittance_from_density,
    render_visibility_from_alpha,
    render_visibility_from_density,
    render_weight_from_alpha,
    render_weight_from_density,
    rendering,
)

__all__ = [
    "OccGridEstimator",
    "PropNetEstimator",
    "RayIntervals",
    "RaySamples",
    "accumulate_along_rays",
    "accumulate_along_rays_",
    "distortion",
    "exclusive_prod",
    "exclusive_sum",
    "get_proposal_requires_grad_fn",
    "importance_sampling",
    "inclusive_prod",
    "inclusive_sum",
    "pack_info",
    "ray_aabb_intersect",
    "render_transmittance_from_alpha",
    "render_transmittance_from_density",
    "render_visibility_from_alpha",
    "render_visibility_from_density",
    "render_weight_from_alpha",
    "render_weight_from_density",
    "rendering",
    "searchsorted",
    "traverse_grids",
]
