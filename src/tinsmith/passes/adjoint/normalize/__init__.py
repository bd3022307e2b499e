"""The first step of the adjoint: the kernels of an op as tasks in SSA form, with what has a gradient in each."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
