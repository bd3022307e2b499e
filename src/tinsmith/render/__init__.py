"""Differentiable rendering: rays, marching, compositing, direct volume rendering.

The axes, everywhere: n rays, s samples in all, c channels. Samples lie packed, those of a ray beside each other, and
`rays[n, 2]` (int32) tells for each ray where its samples start and how many there are. Directions need not be of
length one: t counts in units of a direction's length.
"""

from __future__ import annotations

from ._cameras import Rays, image_rays, pinhole_rays
from ._crossing import Crossing, ray_aabb_intersect
from ._march import Samples, march
from ._occupancy import OccupancyGrid

__all__ = [
    "Crossing",
    "OccupancyGrid",
    "Rays",
    "Samples",
    "image_rays",
    "march",
    "pinhole_rays",
    "ray_aabb_intersect",
]
