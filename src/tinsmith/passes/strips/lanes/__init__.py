"""Lanes: a parallel loop with inner loops of data-dependent length, in blocks of iterations that run side by side."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
