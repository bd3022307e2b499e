"""The last step of the adjoint: gathers for atomics, stores for sums, no copies. Each pass takes a program."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
