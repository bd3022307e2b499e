"""Compile kernels: determine what a kernel reads and writes, check it, and build its compiled forms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
