"""Our own kernels.

Each is a factory `build(lang, **static)`: `lang` is the module of an engine, so that one text serves
both, and what is static is fixed when the kernel is built. The factories import no engine.
"""

from ._encodings import frequency, one_blob, spherical_harmonics, triangle_wave
from ._grid import grid
from ._splat import splat

__all__ = ["frequency", "grid", "one_blob", "spherical_harmonics", "splat", "triangle_wave"]
