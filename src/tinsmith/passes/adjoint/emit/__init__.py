"""The third step of the adjoint: the reverse of each task, written as planned, and the order of the reverses."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
