"""Kernels of rays: where they start, which boxes they meet, and the steps that they take through a grid."""

from ._march import RUNS, March, march
from ._occupancy import occupied_bits
from ._rays import directions, pinhole_rays, positions, ray_aabb_intersect
from ._traverse import Traversal, traversal

__all__ = [
    "March",
    "RUNS",
    "Traversal",
    "directions",
    "march",
    "occupied_bits",
    "pinhole_rays",
    "positions",
    "ray_aabb_intersect",
    "traversal",
]
