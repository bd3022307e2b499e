"""Kernels of samples along rays, packed one ray after the other: weights, sums, losses and resampling."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
