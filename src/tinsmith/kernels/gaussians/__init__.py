"""Kernels of Gaussians and surfels: projection, color, and blending of the tiles of a picture."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
