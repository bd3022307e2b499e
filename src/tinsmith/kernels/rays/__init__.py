"""Kernels of rays: where they start, which boxes they meet, and the steps that they take through a grid."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
