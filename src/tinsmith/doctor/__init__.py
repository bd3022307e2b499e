"""Checks of a kernel and its gradient: static analysis, an interpreted run, and a comparison of derivatives.

Each file is loaded when one of its names is first used: a check of files needs neither torch nor an op.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
