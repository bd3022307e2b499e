"""Gradients: compares an op's own gradient with the oracle's and with central differences, in the best available
precision.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
