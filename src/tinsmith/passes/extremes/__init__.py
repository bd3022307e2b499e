"""Maxima and minima that atomics take, in terms of ordinary statements, for the adjoint and for the tangent."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
