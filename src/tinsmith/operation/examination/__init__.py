"""Access to the parts of an op or a layer, for the checks of `doctor`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
