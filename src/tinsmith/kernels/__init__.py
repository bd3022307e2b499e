"""Our own kernels.

Each is a factory `build(lang, **static)`: `lang` is the module of an engine, so that one text serves
both, and what is static is fixed when the kernel is built. The factories import no engine.
"""

from ._activations import ACTIVATIONS
from ._arithmetic import ARITHMETIC, VECTOR_ARITHMETIC, VECTOR_WIDTHS
from ._composite import composite
from ._continued_weights import continued_weights
from ._counting_sort import counting_sort, move_rows
from ._distortion import distortion
from ._element_losses import ELEMENT_LOSSES
from ._encodings import frequency, one_blob, spherical_harmonics, triangle_wave
from ._entropy import entropy
from ._gaussian_absolute import gaussian_absolute
from ._gaussian_blend import gaussian_blend
from ._gaussian_covariance import gaussian_covariance
from ._gaussian_harmonics import gaussian_harmonics
from ._gaussian_projection import gaussian_projection, gaussian_radii
from ._grid import grid
from ._march import RUNS, March, march
from ._network_shape import NetworkShape
from ._networks import backward_networks, forward_networks, learning_networks
from ._occupancy import occupied_bits
from ._rays import directions, pinhole_rays, positions, ray_aabb_intersect
from ._resampling import resampling
from ._segments import accumulate, lanes_of, running_product, running_sum, segment_sum
from ._splat import splat
from ._surfel_blend import surfel_blend
from ._surfel_projection import surfel_projection, surfel_radii
from ._traverse import Traversal, traversal
from ._volume import volume_render
from ._volume_gradient import volume_gradient

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
