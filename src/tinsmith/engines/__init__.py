"""The engines that run kernels, behind one abstract class, `Engine`.

Only this folder uses private names of Taichi and Quadrants. Other packages ask for an `Engine` by its name or by one
of its kernels, and never import an engine: a user of one engine does not need the other.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
