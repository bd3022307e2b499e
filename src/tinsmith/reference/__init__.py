"""Slow, readable reference implementations, in plain torch, of what the library computes with kernels.

They are public, so that you can compare your own kernels with them too.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
