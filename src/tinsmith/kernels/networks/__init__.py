"""Kernels of fully fused networks: forward, backward, and loss with gradient, vectorized across neurons or samples."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
