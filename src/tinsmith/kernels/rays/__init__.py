"""Kernels of rays: of cameras, through boxes, and marching through a grid."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
