"""How torch sees an op: the eager Function, the torch operators, their transforms and sharding."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
