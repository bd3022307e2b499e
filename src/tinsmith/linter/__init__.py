"""Lint: static analysis of kernels, given as objects or in files that are not run.

A kernel becomes a `Subject`; rules look at it, one idea each, and say `Finding`s. Nothing here knows ops.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
