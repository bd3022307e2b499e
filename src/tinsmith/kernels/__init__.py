"""Our own kernels.

Each is a factory `build(lang, **static)`: `lang` is the module of an engine, so that one text serves
both, and what is static is fixed when the kernel is built. The factories import no engine.
"""

from ._activations import ACTIVATIONS
from ._arithmetic import ARITHMETIC, VECTOR_ARITHMETIC, VECTOR_WIDTHS
from ._counting_sort import counting_sort, move_rows
from ._element_losses import ELEMENT_LOSSES
from ._encodings import frequency, one_blob, spherical_harmonics, triangle_wave
from ._grid import grid
from ._splat import splat
from ._volume import volume_render
from ._volume_gradient import volume_gradient
from .gaussians import (
    gaussian_absolute,
    gaussian_blend,
    gaussian_covariance,
    gaussian_harmonics,
    gaussian_projection,
    gaussian_radii,
    surfel_blend,
    surfel_projection,
    surfel_radii,
)
from .networks import NetworkShape, backward_networks, forward_networks, learning_networks
from .rays import (
    RUNS,
    March,
    Traversal,
    directions,
    march,
    occupied_bits,
    pinhole_rays,
    positions,
    ray_aabb_intersect,
    traversal,
)
from .samples import (
    accumulate,
    composite,
    continued_weights,
    distortion,
    entropy,
    lanes_of,
    resampling,
    running_product,
    running_sum,
    segment_sum,
)

__all__ = [
    "ACTIVATIONS",
    "ARITHMETIC",
    "ELEMENT_LOSSES",
    "March",
    "NetworkShape",
    "RUNS",
    "Traversal",
    "VECTOR_ARITHMETIC",
    "VECTOR_WIDTHS",
    "accumulate",
    "backward_networks",
    "composite",
    "continued_weights",
    "counting_sort",
    "directions",
    "distortion",
    "entropy",
    "forward_networks",
    "frequency",
    "gaussian_absolute",
    "gaussian_blend",
    "gaussian_covariance",
    "gaussian_harmonics",
    "gaussian_projection",
    "gaussian_radii",
    "grid",
    "lanes_of",
    "learning_networks",
    "march",
    "move_rows",
    "occupied_bits",
    "one_blob",
    "pinhole_rays",
    "positions",
    "ray_aabb_intersect",
    "resampling",
    "running_product",
    "running_sum",
    "segment_sum",
    "spherical_harmonics",
    "splat",
    "surfel_blend",
    "surfel_projection",
    "surfel_radii",
    "traversal",
    "triangle_wave",
    "volume_gradient",
    "volume_render",
]
