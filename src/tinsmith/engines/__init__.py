"""The engines that run kernels, behind one contract.

This folder is the only place that knows Taichi's or Quadrants' private ways. Everybody else
asks for an `Engine` by name, or by handing over a kernel, and never imports an engine: a
user of one engine does not need the other.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
