"""Strips and lanes: loops in the forms that the compilers of engines for CPUs make machine vectors of."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
