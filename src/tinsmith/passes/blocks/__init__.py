"""Blocks of a parallel loop, run in order: a form of a kernel without barriers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
