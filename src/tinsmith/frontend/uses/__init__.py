"""How a kernel uses its arrays: reads, writes and additions, also in functions that it calls; what a reverse needs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
