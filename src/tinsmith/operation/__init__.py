"""The public functions `ts.op` and `ts.chain`, and the class `Op`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
